"""Returned attention weights. N batch, h heads, T queries, S keys"""

import torch

from attncheck.allowed import random_mask
from attncheck.compare import Inapplicable, answered, fail, premise
from attncheck.registry import check
from attncheck.subject import MASK_AXES, Answer, Case, Subject


@check(
    "weights.rows-sum",
    needs=("weights",),
    axes={"mask": ("none", *MASK_AXES)},
    faults=("softmax.query-axis", "softmax.head-axis", "softmax.extra-one", "mask.after-softmax", "weights.are-scores"),
)
def rows_sum(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The weights of a query are never negative, sum to 1 over the keys it may see, and are 0 on the others.

    Before dropout. Judged for targets that return weights; `weight_sum = below-one` lifts the sum from below.
    """
    allowed = None if case["mask"] == "none" else random_mask(case["mask"], subject, case)
    answer = answered(subject.attempt(subject.draw(case), allowed, case))
    if answer.weights is None:
        raise Inapplicable("no weights were returned")
    visible_NhTS = subject.visible(allowed, case)
    premise(visible_NhTS.any(-1).all(), "a query has no key")
    weights = answer.weights.detach().cpu()
    averaged = weights.ndim == 3
    seen = visible_NhTS.any(1) if averaged else visible_NhTS
    if weights.shape != seen.shape:
        fail(f"the weights have shape {tuple(weights.shape)}, expected (N,h,T,S)={tuple(visible_NhTS.shape)}", answer,
             test=f"assert before_weights.shape == {tuple(seen.shape)}")  # fmt: skip
    if bool((weights < 0).any()):
        fail(f"a weight is {float(weights.min()):.3g}", answer, test="assert (before_weights >= 0).all()")
    hidden = weights.masked_fill(seen, 0.0)
    if bool((hidden != 0).any()):
        fail(f"a blocked key has weight {float(hidden.max()):.3g}", answer,
             test=f"assert not before_weights[~torch.tensor({seen.long().tolist()}).bool()].any()")  # fmt: skip
    _sums(subject, answer, weights.sum(-1))


def _sums(subject: Subject, answer: Answer, sums: torch.Tensor) -> None:
    kind = subject.says("weight_sum") or "one"
    slack = 16 * torch.finfo(subject.dtype).eps * max(1, sums.shape[-1])
    off = (
        (sums - 1).abs()
        if kind == "one"
        else (sums - 1).clamp(min=0)
        if kind == "below-one"
        else torch.zeros_like(sums)
    )
    if not bool((off <= slack).all()):
        worst = sums.flatten()[off.nan_to_num(torch.inf).argmax()]
        fail(f"the weights of a query sum to {float(worst):.4g}, expected {kind}", answer,
             test=f"assert ((before_weights.sum(-1) - 1).abs() <= {slack:.2g}).all()")  # fmt: skip
