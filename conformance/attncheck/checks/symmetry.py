"""Symmetries: order of tokens where there are no positions, and samples that do not know of one another.

N batch, T queries, S keys
"""

import torch

from attncheck.allowed import random_mask
from attncheck.compare import Inapplicable, answered, changed, close, fail, premise, tolerance, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Case, Subject


def rotated(n: int) -> list[int]:
    """An order in which nothing stays in place."""
    return [(i + 1) % n for i in range(n)]


@check(
    "symmetry.permutation",
    where=lambda case: case.T > 1 and case.S > 1,
    faults=("heads.split-by-view", "heads.merged-without-transpose", "positions.added", "value.pooled"),
)
def permutation(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Without positions and mask, permuting the tokens permutes the outputs, and does not leave them.

    In cross-attention permuting the memory changes nothing. The bound is numeric: sums are taken in another order.
    """
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed, so that order matters to it")
    if subject.says("positions") not in (None, "none"):
        raise Inapplicable(f"the target has positions: {subject.says('positions')}")
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    order = rotated(case.S)
    names = "query key value" if inputs.tied else "key value"
    after = answered(subject.attempt(inputs.reindexed(order, -2, names), None, case))
    want = before.out[..., order, :] if inputs.tied else before.out
    what = "after rotating the tokens by one" if inputs.tied else "after rotating the memory by one"
    close(after, want, tolerance(before), what, (before, f"before[..., {order}, :]" if inputs.tied else "before"))
    if inputs.tied and not bool((want != before.out).any()):
        fail("all positions have the same output, although their tokens differ", before,
             test="assert (before != before.roll(1, -2)).any()")  # fmt: skip


@check(
    "symmetry.batch",
    axes={"masked": (False, True)},
    faults=(
        "batch.as-time",
        "batch.mean-of-samples",
        "heads.batch-merged",
        "softmax.batch-axis",
        "batch.first-keys-for-all",
    ),
)
def batch(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Samples do not influence one another; a sample alone is what it is in the batch, and there its tokens act.

    Exact for edits of another sample, numeric for the sample alone.
    """
    masked = case["masked"] and "N1TS" in subject.masks and case.S > 1
    allowed = random_mask("N1TS", subject, case) if masked else None
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    if case.N > 1:
        n = case.N - 1
        after = answered(subject.attempt(inputs.resampled(n, case.seed), allowed, case))
        rows_NT = (torch.arange(case.N) != n)[:, None].expand(-1, case.T)
        unchanged(before, after, rows_NT, f"sample {n} was edited, but another one changed: there")
        alone = answered(
            subject.attempt(inputs.reindexed([n], 0), None if allowed is None else allowed[n:], case.but(N=1))
        )
        what = f"sample {n} alone against the same sample in the batch"
        close(alone, before.out[n:], tolerance(before), what, (before, f"before[{n}:]"))
    elif case.S > 1:
        last = case.S - 1
        rows = Sight(subject, allowed, case).seeing([last])
        premise(rows.any(), "no query sees the last key")
        after = answered(subject.attempt(inputs.edited([last], case.seed), allowed, case))
        changed(before, after, rows, f"the only sample's key {last} may be seen, but when it was edited")
