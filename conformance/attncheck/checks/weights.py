"""Returned attention weights. N batch, h heads, T queries, S keys"""

import torch

from attncheck.allowed import random_mask
from attncheck.compare import Inapplicable, answered, fail
from attncheck.registry import check
from attncheck.sight import Sight
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
    promised = subject.says("weights")
    if answer.weights is None:
        asked = case.options.get("weights", True)
        if asked and promised in ("per-head", "averaged") and subject.conventions["weights"].source == "declared":
            fail(f"no weights came back, declared is {promised}", answer, test="assert before_weights is not None")
        raise Inapplicable("no weights were returned")
    sight = Sight(subject, allowed, case)
    weights = answer.weights.detach().cpu()
    averaged = weights.ndim == 3 if promised in (None, "none") else promised == "averaged"
    seen = sight.visible_NhTS.any(1) if averaged else sight.visible_NhTS
    if weights.shape != seen.shape:
        expected = f"({'N,T,S' if averaged else 'N,h,T,S'})={tuple(seen.shape)}"
        test = f"assert before_weights.shape == {tuple(seen.shape)}"
        fail(f"the weights have shape {tuple(weights.shape)}, expected {expected}", answer, test=test)
    # What a query without a key gives is a policy, and so is what a padded query gives.
    judged = sight.judged if averaged or sight.by_head else sight.judged[:, None].expand(seen.shape[:-1])
    rows, seen = weights[judged], seen[judged]
    if bool((rows < 0).any()):
        fail(f"a weight is {float(rows.min()):.3g}", answer, test="assert (before_weights >= 0).all()")
    hidden = rows.masked_fill(seen, 0.0)
    if bool((hidden != 0).any()):
        test = (
            f"rows, seen = torch.tensor({judged.long().tolist()}).bool(), torch.tensor({seen.long().tolist()}).bool()\n"
            "assert not before_weights[rows][~seen].any()"
        )
        fail(f"a blocked key has weight {float(hidden.max()):.3g}", answer, test=test)
    _sums(subject, answer, rows.sum(-1), judged)


def _sums(subject: Subject, answer: Answer, sums: torch.Tensor, judged: torch.Tensor) -> None:
    kind = subject.says("weight_sum") or "one"
    slack = 16 * torch.finfo(subject.dtype).eps * answer.case.S
    off = (sums - 1).abs() if kind == "one" else (sums - 1).clamp(min=0) if kind == "below-one" else 0 * sums
    if not bool((off <= slack).all()):
        worst = float(sums[off.nan_to_num(torch.inf).argmax()])
        test = (
            f"rows = torch.tensor({judged.long().tolist()}).bool()\n"
            f"assert ((before_weights[rows].sum(-1) - 1).abs() <= {slack:.2g}).all()"
        )
        fail(f"the weights of a query sum to {worst:.4g}, expected {kind}", answer, test=test)
