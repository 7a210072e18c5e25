"""Numbers: the target against a float64 reference that shares its weights."""

from collections.abc import Callable

import torch

from attncheck.allowed import mask_of
from attncheck.compare import answered, close, fail
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Subject
from attncheck.truth import expected, shared_oracle


@check(
    "numeric.oracle",
    axes={"mask": ("none", "causal", "bias", *MASK_AXES)},
    faults=(
        "scale.none", "scale.by-model-width", "scale.by-heads", "scale.by-width-not-root", "scale.by-keys",
        "scale.inverted", "scale.eighth", "scale.only-unequal", "heads.tiled-groups", "heads.first-key-for-all",
        "heads.last-dropped", "heads.reversed", "heads.first-repeated", "heads.averaged",
        "projection.value-from-key", "projection.value-is-key", "projection.query-from-key",
        "projection.value-input-ignored", "projection.memory-ignored", "projection.no-output",
        "projection.no-output-bias", "projection.no-value-bias", "projection.output-transposed",
        "softmax.in-bfloat16", "value.last-key-lost-at-length", "heads.see-own-slice", "heads.groups-along-time",
        "heads.attended-over", "heads.normalised-together", "mask.bias-scaled", "mask.bias-read-as-bool",
        "rotary.queries-only", "rotary.sign-lost", "rotary.against-each-other", "rotary.by-head",
        "rotary.mixed-pairing", "rotary.positions-doubled",
    ),
)  # fmt: skip
def oracle(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output equals the float64 reference on the same weights.

    Bound: 8 x the error of the reference in the target's own dtype, and at least 64 eps of the output. Sees what
    symmetry and masks cannot: scale, order of heads, which head reads which key.

    Why: A wrong scale, heads in the wrong order, or a projection used twice break no symmetry and leak nothing.
    Only the right numbers on the same weights show them.
    Fix: Follow the likely cause that the finding names. Otherwise compare with the reference step by step: project,
    split, scale by 1/sqrt(d) of a head, mask, softmax, mix, merge, output.
    Blind: Targets whose weights cannot be found, or that have a part which the reference does not (a cap of the
    scores, rotated or biased positions): there it is inapplicable. Errors below the bound, dropout, and gradients.
    """
    oracle = shared_oracle(oracle, subject.puzzle)
    allowed = mask_of(subject, case)
    inputs = subject.draw(case)
    got = answered(subject.attempt(inputs, allowed, case))
    want, bound = expected(subject, oracle, got)
    sight = Sight(subject, allowed, case)
    close(got, want.out, bound, "against the float64 reference on the same weights", rows=sight.judged)
    _weights(subject, got, want, bound, sight.judged)


def _weights(subject: Subject, got: Answer, want: Answer, bound: Callable[[], float], judged: torch.Tensor) -> None:
    """The returned weights against the reference's, where both are (N,h,T,S)."""
    shape = (got.case.N, subject.heads, got.case.T, got.case.S)
    if got.weights is None or want.weights is None or got.weights.shape != shape:
        return
    rows = judged if judged.ndim == 3 else judged[:, None].expand(shape[:3])
    error = (got.weights.detach().cpu().double() - want.weights.detach()).abs().nan_to_num(torch.inf)
    error = error.masked_fill(~rows[..., None], 0.0)
    eps = torch.finfo(subject.dtype).eps
    if float(error.max()) <= 64 * eps:
        return
    limit = max(bound(), 64 * eps)
    if not float(error.max()) <= limit:
        index = tuple(int(i) for i in torch.unravel_index(error.argmax(), error.shape))
        value = float(want.weights[index])
        test = f"assert abs(before_weights[{', '.join(map(str, index))}].item() - {value!r}) <= {limit!r}"
        told = f"weights{list(index)} are {float(got.weights[index]):.4g}, expected {value:.4g}"
        fail(f"against the float64 reference on the same weights: {told}", got, test=test)
