"""What the float64 reference on the target's own weights says, and how far the target may be from it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attncheck.compare import Inapplicable, answered
from attncheck.subject import Answer, Case, Subject


def shared_oracle(oracle: Subject | None, puzzle: str = "") -> Subject:
    """The oracle, or why there is none; puzzle: what of the target was not understood."""
    if oracle is None:
        raise Inapplicable(puzzle or "no known reading of the target's weights gives its output")
    return oracle


def expected(
    subject: Subject, oracle: Subject, got: Answer, dtype: torch.dtype | None = None
) -> tuple[Answer, Callable[[], float]]:
    """The reference's answer in float64, and the bound that follows from its error in `dtype`, for `close`."""
    dtype = subject.dtype if dtype is None else dtype
    plain = oracle_case(oracle, got.case)
    want = answered(oracle.attempt(got.inputs.to(torch.float64), got.allowed, plain))

    def bound() -> float:
        same = answered(oracle.at(dtype).attempt(got.inputs.to(dtype), got.allowed, plain))
        # Rows without a key are NaN in both; they are not judged.
        error = float((same.out.double() - want.out).abs().nan_to_num(0.0).max())
        # A score is rounded by its own size, and with it the weights; the reference may have been lucky there.
        size = float(oracle.adapter.scores(want.inputs).abs().max() * oracle.adapter.factor)
        largest = float(want.out.abs().nan_to_num(0.0).max())
        return max(8 * error, (64 + 8 * size) * torch.finfo(dtype).eps * largest)

    return want, bound


def oracle_case(oracle: Subject, case: Case) -> Case:
    """The same sizes in eval mode, with the oracle's own options."""
    return case.but(mode="eval no-grad", strided=False, options={k: v[-1] for k, v in oracle.options.items()})
