"""Symmetries: order of tokens where there are no positions, and samples that do not know of one another.

N batch, T queries, S keys
"""

import torch

from attncheck.allowed import mask_of, random_mask
from attncheck.compare import Inapplicable, answered, changed, close, fail, premise, tolerance, tolerance_of, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Case, Subject


def rotated(n: int) -> list[int]:
    """An order in which nothing stays in place."""
    return [(i + 1) % n for i in range(n)]


@check(
    "symmetry.permutation",
    needs=("order",),
    where=lambda case: case.T > 1 and case.S > 1,
    faults=("heads.split-by-view", "heads.merged-without-transpose", "positions.added", "value.pooled"),
)
def permutation(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Without positions and mask, permuting the tokens permutes the outputs, and does not leave them.

    In cross-attention permuting the memory changes nothing. The bound is numeric: sums are taken in another order.

    Why: Heads that are cut by a view without a transpose mix time steps. Shapes are right and training works, and a
    token is no longer attended to as one.
    Fix: view(N, T, h, d).transpose(1, 2) to split, transpose(1, 2).reshape(N, T, h * d) to merge. Declare positions
    where the target has them on purpose.
    Blind: One rotation by one is tried, without a mask. What treats all tokens alike passes: scale, order of heads,
    softmax over another axis. Causal and windowed targets, and such with positions, are not asked.
    Earns: It needs neither a mask nor the target's weights, and where these cannot be read it alone sees positions
    that nobody declared.
    """
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed, so that order matters to it")
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    order = rotated(case.S)
    names = "query key value" if inputs.tied else "key value"
    after = answered(subject.attempt(inputs.reindexed(order, -2, names), None, case))
    want = before.out[..., order, :] if inputs.tied else before.out
    what = "after rotating the tokens by one" if inputs.tied else "after rotating the memory by one"
    close(after, want, tolerance_of(before), what, (before, f"before[..., {order}, :]" if inputs.tied else "before"))
    if inputs.tied and not bool((want != before.out).any()):
        fail("all positions have the same output, although their tokens differ", before,
             test="assert (before != before.roll(1, -2)).any()")  # fmt: skip


@check(
    "symmetry.permutation-masked",
    needs=("order", "mask"),
    where=lambda case: case.T > 1 and case.tied,
    axes={"mask": ("TS", "N1TS", "N11S", "NhTS")},
    faults=("positions.added-under-mask", "mask.transposed", "heads.split-by-view"),
)
def permutation_masked(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Permuting the tokens and both axes of the mask permutes the outputs.

    Why: a mask that is laid across, or tokens that know their place under a mask only, break it.
    Fix: let the mask be the only thing that depends on the order, and its last axis run over the keys.
    Blind: built-in causality, windows and positions.
    Earns: it sees the order on the masked path, which `symmetry.permutation` never takes.
    """
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed, so that order matters to it")
    allowed, inputs = random_mask(case["mask"], subject, case), subject.draw(case)
    order = rotated(case.T)
    turned = allowed[..., order]
    turned = turned[..., order, :] if turned.shape[-2] > 1 else turned
    before = answered(subject.attempt(inputs, allowed, case))
    after = answered(subject.attempt(inputs.reindexed(order, -2), turned, case))
    judged = Sight(subject, turned, case).judged
    close(after, before.out[..., order, :], tolerance_of(before), "after rotating the tokens and the mask by one",
          (before, f"before[..., {order}, :]"), rows=judged)  # fmt: skip


@check(
    "symmetry.keys",
    needs=("order", "memory"),
    where=lambda case: case.S > 1 and not case.tied,
    axes={"mask": ("none", *MASK_AXES)},
    faults=("positions.added-to-memory", "mask.rolled-across"),
)
def keys(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Permuting the memory and the key axis of the mask changes nothing.

    Why: a memory is a set, and the mask must follow its elements.
    Fix: lay the mask's last axis along the memory, and add positions to the memory before it comes in, not inside.
    Blind: built-in causality and positions.
    Earns: it sees a mask that slips along the keys without an oracle.
    """
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed, so that order matters to it")
    # Backwards, since a mask that slips along the keys commutes with a rotation.
    allowed, inputs, order = mask_of(subject, case), subject.draw(case), list(range(case.S))[::-1]
    before = answered(subject.attempt(inputs, allowed, case))
    turned = None if allowed is None else allowed[..., order]
    after = answered(subject.attempt(inputs.reindexed(order, -2, "key value"), turned, case))
    close(after, before.out, tolerance_of(before), "with the memory and the mask's key axis backwards",
          (before, "before"))  # fmt: skip


@check(
    "symmetry.positions-matter",
    needs=("positions",),
    strength=1,
    where=lambda case: case.T > 2 and case.S > 2,
    faults=("positions.absent",),
)
def positions_matter(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """With positions the order of tokens matters: permuting them does not just permute the outputs.

    Why: a table that is indexed by the batch, by one number, or not at all leaves the model without any order.
    Fix: add position t to token t, for each t of the time axis.
    Blind: positions that are there and wrong.
    Earns: it reads the test of `symmetry.permutation` the other way round, for targets to which that cannot be put.
    """
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, None, case))
    # Three in another order; two that swap would look alike to positions that count distance.
    order = [1, 2, 0, *range(3, case.S)]
    names = "query key value" if inputs.tied else "key value"
    after = answered(subject.attempt(inputs.reindexed(order, -2, names), None, case))
    want, told = (before.out[..., order, :], f"before[..., {order}, :]") if inputs.tied else (before.out, "before")
    if bool(((after.out - want).abs() <= tolerance(before)).all()):
        what = f"positions are {subject.says('positions')}, but putting the tokens in the order {order}"
        fail(f"{what} only reorders the outputs" if inputs.tied else f"{what} changes nothing", before, after,
             f"assert not torch.allclose(after, {told}, atol=1e-5)")  # fmt: skip


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

    Why: When the batch is taken for time, or statistics are shared, an answer depends on who else is in the batch:
    private data leaks, and evaluation depends on the batch size.
    Fix: Check batch_first, and that heads and samples are split and merged in one order; reduce over the last axes
    only.
    Blind: Edits the last sample and looks at the others, so that a leak among the others alone passes if the last
    one is spared. A leak into the last sample is seen only above the numeric bound.
    Earns: It needs neither a mask nor the target's weights, and sees a hundredth of a sample mixed into another,
    bit for bit.
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
        close(alone, before.out[n:], tolerance_of(before), what, (before, f"before[{n}:]"))
    elif case.S > 1:
        last = case.S - 1
        rows = Sight(subject, allowed, case).seeing([last])
        premise(rows.any(), "no query sees the last key")
        after = answered(subject.attempt(inputs.edited([last], case.seed), allowed, case))
        changed(before, after, rows, f"the only sample's key {last} may be seen, but when it was edited")
