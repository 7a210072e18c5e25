"""What a target gives for a query that may attend to no key: a policy, recognised by how the output behaves.

N batch, h heads, T queries, S keys
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncheck.allowed import random_mask
from attncheck.compare import Inapplicable, answered
from attncheck.inputs import Inputs
from attncheck.subject import Answer, Case, Refusal, Subject

DEAD = (-2, -1)  # the queries that lose all keys, in the first sample


def dead_mask(axes: str, subject: Subject, case: Case) -> Tensor:
    """A random mask in which the first sample's last two queries see nothing; all of its queries for axes N11S."""
    mask = random_mask(axes, subject, case).clone()
    rows = list(DEAD) if mask.shape[-2] > 1 else [0]
    sample = mask if mask.ndim == 2 else mask[0]
    sample[..., rows, :] = False
    return mask


def policy_of(subject: Subject, inputs: Inputs, mask: Tensor, case: Case) -> tuple[str, Answer | Refusal]:
    """nan, zero, uniform, unmasked, raise or undefined, and the answer that shows it."""
    answer = subject.attempt(inputs, mask, case)
    if isinstance(answer, Refusal):
        if answer.unsupported:
            raise Inapplicable(str(answer.error))
        return "raise", answer
    row = dead_rows(answered(answer))
    if row.isnan().any():
        return "nan" if row.isnan().all() else "undefined", answer
    other = subject.attempt(subject.draw(case.but(seed=case.seed + 1)), mask, case)
    plain = subject.attempt(inputs, None, case)
    if isinstance(other, Answer) and _same(row, dead_rows(other), answer):
        return "zero", answer
    if isinstance(plain, Answer) and _same(row, dead_rows(plain), answer):
        return "unmasked", answer
    return "uniform" if _same(row[..., :1, :], row[..., 1:, :], answer) else "undefined", answer


def dead_test(wanted: str, case: Case) -> str:
    """Lines for the reproduction that hold under the declared policy only."""
    options = "".join(f", {k}={v!r}" for k, v in case.options.items())
    again = f"again, _ = call(query * 2, key * 2, value * 2, allowed{options})\n"
    rows, same = "before[0, ..., -2:, :]", "torch.allclose(before[0, ..., -2:, :], again[0, ..., -2:, :])"
    return {
        "nan": f"assert {rows}.isnan().all()",
        "raise": "raise AssertionError('the call returned, expected an exception')",
        "zero": f"{again}assert {same}  # no attention leaves the output bias, whatever the inputs are",
        "uniform": f"{again}assert not {same}  # the mean of the values follows them\n"
        f"assert torch.allclose({rows}[..., :1, :], {rows}[..., 1:, :])  # and is the same for both rows",
    }.get(wanted, f"assert {rows}.isfinite().all()")


def dead_rows(answer: Answer) -> Tensor:
    return answer.out[0][..., list(DEAD), :]


def _same(a: Tensor, b: Tensor, answer: Answer) -> bool:
    """Equal up to a thousandth of the output's size: the policies lie far apart, and a -1e4 fill rounds coarsely."""
    return bool(
        (a - b).abs().max() <= 1e-3 * answer.out.nan_to_num(0.0).abs().max().clamp(min=torch.finfo(a.dtype).tiny)
    )
