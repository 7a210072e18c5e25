"""Comparators. They raise; none returns a bool that somebody could forget to look at.

N batch, T queries, S keys; rows are the outputs (N,T) of a query
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from attncheck.subject import Answer, Refusal

# The test of a call that was answered, where any exception was expected.
REFUSAL = "refusal"


class Failure(Exception):
    """A property does not hold: the claim that is broken, the evidence, and what is needed to show it again.

    test: lines of Python on `before` and `after` (outputs, positions last but one) that fail when the fault is there.
    """

    def __init__(self, evidence: str, before: Answer | Refusal | None, after: Answer | None = None, test: str = ""):
        super().__init__(evidence)
        self.evidence, self.before, self.after, self.test = evidence, before, after, test


class Vacuous(Exception):
    """The premise of a check did not hold in this case, so that it showed nothing."""


class Inapplicable(Exception):
    """The check cannot be asked of this target; the text says why."""


class Rounding(Exception):
    """An exact claim is broken by a difference of rounding size: reported with its size, not called a leak."""


def premise(holds: bool | Tensor, text: str) -> None:
    if not bool(holds):
        raise Vacuous(text)


def answered(answer: Answer | Refusal) -> Answer:
    """The answer, or the finding that a supported call was refused. A misshapen one is `contract.shape`'s to report."""
    if isinstance(answer, Answer):
        if answer.out.shape[:-1] != answer.inputs.query.shape[:-1]:
            raise Inapplicable(f"the output has shape {tuple(answer.out.shape)}, see contract.shape")
        return answer
    if answer.unsupported:
        raise Inapplicable(str(answer.error))
    raise Failure(f"the call raised {answer}", answer, test="")


def finite(answer: Answer, rows: Tensor | None = None) -> None:
    """No NaN and no infinity in the outputs of `rows`."""
    bad = ~answer.out.isfinite().all(-1) & _as_rows(rows, answer)
    if bad.any():
        fail(
            f"the output of {place(bad)} is not finite", answer, test=f"assert before[{literal(bad)}].isfinite().all()"
        )


def unchanged(before: Answer, after: Answer, rows: Tensor, what: str) -> None:
    """Bit for bit the same outputs in `rows`. NaN equals nothing."""
    rows = _as_rows(rows, before)
    same_shape(before, after)
    premise(rows.any(), "no output is left to compare")
    moved = (before.out != after.out).any(-1) & rows
    if not moved.any():
        return
    size = float((before.out - after.out).abs().nan_to_num(torch.inf, torch.inf).amax(-1)[moved].max())
    largest = float(before.out[rows].nan_to_num(0.0, 0.0, 0.0).abs().max())
    if size <= 8 * torch.finfo(before.out.dtype).eps * largest:
        raise Rounding(f"outputs differ by {size:.1g}, which is rounding")
    told = f"changed by {size:.2g}" if size < torch.inf else "is not finite"
    fail(
        f"{what}: the output of {place(moved)} {told}, expected no change at all",
        before,
        after,
        f"assert torch.equal(before[{literal(rows)}], after[{literal(rows)}])",
    )


def changed(before: Answer, after: Answer, rows: Tensor, what: str) -> None:
    """Every output in `rows` differs."""
    rows = _as_rows(rows, before)
    same_shape(before, after)
    premise(rows.any(), "no output is left to compare")
    still = (before.out == after.out).all(-1) & rows
    if still.any():
        fail(
            f"{what}: the output of {place(still)} did not change, expected a change",
            before,
            after,
            f"assert (before != after).any(-1)[{literal(rows)}].all()",
        )


def close(
    got: Answer,
    want: Tensor,
    bound: float | Callable[[], float],
    what: str,
    other: tuple[Answer, str] | None = None,
    rows: Tensor | None = None,
    part: str = "after",
) -> None:
    """Within a derived bound of the expected outputs, element for element. NaN equals nothing.

    bound: at least 64 eps of the output, which is tried first; a function is only asked where that does not settle it.
    other: the answer that `want` was taken from, and how, as Python on `before`; None where `want` is the reference's.
    rows: the outputs that are judged, all where None.  part: what `got` is, as Python on the second call's `after`.
    """
    before, after = (got, None) if other is None else (other[0], got)
    expression = "" if other is None else other[1]
    if got.out.shape != want.shape:
        shapes = f"{tuple(got.out.shape)}, expected {tuple(want.shape)}"
        test = f"assert {'before' if other is None else 'after'}.shape == {tuple(want.shape)}"
        fail(f"{what}: the output has shape {shapes}", before, after, test)
    error = (got.out.double() - want.double()).abs().nan_to_num(torch.inf, torch.inf)
    error = error.masked_fill(~_as_rows(rows, got)[..., None], 0.0)
    if bool((error <= floor_of(got, want)).all()):
        return
    bound = bound() if callable(bound) else bound
    # A bound that is NaN lets nothing pass.
    wrong = ~(error <= bound).all(-1)
    if not wrong.any():
        return
    index = tuple(int(i) for i in torch.unravel_index(error.argmax(), error.shape))
    literal = f"assert abs(before[{', '.join(map(str, index))}].item() - {want[index].item()!r}) <= {bound!r}"
    fail(
        f"{what}: output{list(index)} is {got.out[index]:.7g}, expected {want[index]:.7g}; it is off by "
        f"{error[index]:.2g} (bound {bound:.1g}), the most of {int(wrong.sum())} of {wrong.numel()} queries",
        before,
        after,
        literal if other is None else _allclose(part, expression, bound, rows, got),
    )


def _allclose(part: str, expression: str, bound: float, rows: Tensor | None, got: Answer) -> str:
    if rows is None or bool(rows.all()):
        return f"assert torch.allclose({part}, {expression}, rtol=0, atol={bound!r})"
    judged = literal(_as_rows(rows, got))
    return f"judged = {judged}\nassert torch.allclose(({part})[judged], ({expression})[judged], rtol=0, atol={bound!r})"


def same_shape(before: Answer, after: Answer) -> None:
    if before.out.shape != after.out.shape:
        shapes = f"{tuple(before.out.shape)} and {tuple(after.out.shape)}"
        fail(f"two calls of one shape gave outputs {shapes}", before, after, "assert before.shape == after.shape")


def fail(evidence: str, before: Answer | Refusal | None, after: Answer | None = None, test: str = "") -> NoReturn:
    raise Failure(evidence, before, after, test)


def place(rows: Tensor) -> str:
    """The first True of (N,T) or (N,h,T), in the words of the field."""
    index = [int(i) for i in rows.nonzero()[0]]
    names = ("batch", "query") if rows.ndim == 2 else ("batch", "head", "query")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=True))


def literal(rows: Tensor) -> str:
    return f"torch.tensor({rows.long().tolist()}).bool()"


def _as_rows(rows: Tensor | None, answer: Answer) -> Tensor:
    """Rows (N,T) as a mask of the output's own leading axes: (N,T), or (N,h,T) of a kernel."""
    shape = answer.out.shape[:-1]
    if rows is None:
        return torch.ones(shape, dtype=torch.bool)
    return (rows if rows.ndim == len(shape) else rows[:, None, :]).expand(shape)


def tolerance_of(answer: Answer) -> Callable[[], float]:
    """The tolerance, for a comparison that seldom needs it: it costs a call."""
    return lambda: tolerance(answer)


def floor_of(answer: Answer, want: Tensor) -> float:
    """64 eps of the largest expected output, in the target's dtype: what no implementation is asked to undercut."""
    return 64 * torch.finfo(answer.subject.dtype).eps * float(want.abs().nan_to_num(0.0, 0.0, 0.0).max())


def tolerance(answer: Answer) -> float:
    """A bound without an oracle: 16 x what a change of the inputs' last bit does, and at least 64 eps of the output."""
    eps = torch.finfo(answer.subject.dtype).eps
    floor = floor_of(answer, answer.out)
    signs = torch.Generator().manual_seed(7)

    def nudge(name: str, x: Tensor) -> tuple[Tensor, str]:
        return x * (1 + eps * torch.randn(x.shape, generator=signs).sign().to(x)), ""

    nudged = answer.subject.attempt(answer.inputs.map(nudge), answer.allowed, answer.case)
    return floor if isinstance(nudged, Refusal) else max(floor, 16 * float((nudged.out - answer.out).abs().max()))
