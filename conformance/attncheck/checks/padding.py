"""Padding: tokens that fill a batch up to one length. N batch, T queries, S keys"""

import torch

from attncheck.allowed import real_tokens
from attncheck.compare import Inapplicable, answered, changed, close, tolerance_of, unchanged
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Case, Subject


def fits_length(case: Case) -> bool:
    return case.S > 2


def seen_by_all(subject: Subject, case: Case) -> None:
    """A padding mask leaves every query a key only where the target itself hides none."""
    if not bool(subject.pattern(case.T, case.S).all()):
        raise Inapplicable("the target is causal or windowed, so that padding can leave a query without a key")


@check(
    "mask.padding",
    needs=("mask",),
    where=fits_length,
    axes={"mask": ("N11S",)},
    faults=(
        "mask.padding-taken-for-lengths",
        "softmax.empty-block",
        "mask.last-key-visible",
        "mask.query-axis",
        "mask.first-sample-for-all",
    ),
)
def padding(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A padding mask hides the padding of its own sample, at either end and in the middle, and no real token.

    Exact. What a padded query itself gives is a policy.

    Why: a model that reads padding gives another answer in another batch.
    Fix: lay the mask along the keys, (N,1,1,S), and build it from the tokens, not from their number.
    Blind: padding masks that a target makes itself from token ids.
    Earns: it knows where padding lies in practice, which a random mask rarely hits.
    """
    seen_by_all(subject, case)
    allowed, inputs = real_tokens(case, subject), subject.draw(case)
    sight = Sight(subject, allowed, case)
    before = answered(subject.attempt(inputs, allowed, case))
    for n in range(min(case.N, 2)):
        padded = (~allowed[n, 0, 0]).nonzero().flatten().tolist()
        rows = sight.blind(padded).clone()
        rows[torch.arange(case.N) != n] = False
        if padded and rows.any():
            after = answered(subject.attempt(inputs.edited(padded, case.seed), allowed, case))
            unchanged(before, after, rows, f"keys {padded} of sample {n} are padding, but when edited")
    real = [s for s in range(case.S) if bool(allowed[..., s].all())][-1:]
    rows = sight.seeing(real)
    if real and rows.any():
        after = answered(subject.attempt(inputs.edited(real, case.seed), allowed, case))
        changed(before, after, rows, f"key {real[0]} is a real token of every sample, but when edited")


@check(
    "symmetry.padding-length",
    needs=("mask",),
    where=fits_length,
    axes={"mask": ("N11S", "N1TS"), "side": ("right", "left")},
    faults=("scale.by-keys", "value.scaled-by-length"),
)
def padding_length(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """More padding, on the right or on the left, leaves the outputs of the real tokens as they are.

    Numeric, since sums are taken over another length.

    Why: how far a batch is padded is an accident of its longest sample.
    Fix: let nothing but the mask depend on the length; count real tokens, not keys.
    Blind: absolute positions and built-in causality, whose padding on the left is another question.
    Earns: every other check compares calls of one length.
    """
    seen_by_all(subject, case)
    if case["side"] == "left" and subject.says("positions") not in (None, "none"):
        raise Inapplicable("positions count from the left")
    inputs = subject.draw(case)
    allowed = real_tokens(case, subject)
    allowed = allowed if case["mask"] == "N11S" else allowed.expand(case.N, 1, case.T, case.S)
    before = answered(subject.attempt(inputs, allowed, case))
    right, more = case["side"] == "right", 3
    padded = _padded(inputs, more, right)
    T = case.T + more if inputs.tied else case.T
    wide = torch.zeros(case.N, 1, allowed.shape[2] if case["mask"] == "N11S" else T, case.S + more, dtype=torch.bool)
    wide[..., slice(0, case.S) if right else slice(more, None)] = allowed[:, :, :1]
    after = answered(subject.attempt(padded, wide, case.but(T=T, S=case.S + more)))
    start = 0 if right or not inputs.tied else more
    judged = Sight(subject, allowed, case).judged
    after = after.narrowed(start, case.T)
    close(after, before.out, tolerance_of(before), f"with {more} more keys of padding on the {case['side']}",
          (before, "before"), rows=judged, part=f"after[..., {start}:{start + case.T}, :]")  # fmt: skip


def _padded(inputs: Inputs, more: int, right: bool) -> Inputs:
    """`more` positions of large random numbers, at one end of the keys; in self-attention of the tokens."""
    names = ("query", "key", "value") if inputs.tied else ("key", "value")

    def change(name: str, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        if name not in names:
            return x, ""
        shape = [*x.shape[:-2], more, x.shape[-1]]
        pad = torch.randn(shape, generator=torch.Generator().manual_seed(8)) * 10
        code = f"(torch.randn({shape}, generator=torch.Generator().manual_seed(8)) * 10).to({name})"
        pair, told = ((x, pad.to(x)), f"{name}, {code}") if right else ((pad.to(x), x), f"{code}, {name}")
        return torch.cat(pair, -2), f"torch.cat(({told}), -2)"

    return inputs.map(change)
