"""Numbers: the target against a float64 reference that shares its weights."""

import torch

from attncheck.allowed import random_mask, triangle
from attncheck.compare import Inapplicable, answered, close, fail
from attncheck.registry import check
from attncheck.subject import MASK_AXES, Answer, Case, Subject


@check(
    "numeric.oracle",
    axes={"mask": ("none", "causal", *MASK_AXES)},
    faults=(
        "scale.none", "scale.by-model-width", "scale.by-heads", "scale.by-width-not-root", "scale.by-keys",
        "scale.inverted", "scale.eighth", "scale.only-unequal", "heads.tiled-groups", "heads.first-key-for-all",
        "heads.last-dropped", "heads.reversed", "heads.first-repeated", "heads.averaged",
        "heads.interleaved-features", "projection.value-from-key", "projection.value-is-key",
        "projection.query-from-key", "projection.value-input-ignored",
        "projection.memory-ignored", "projection.no-output",
        "projection.no-output-bias", "projection.no-value-bias", "projection.output-transposed",
        "softmax.in-bfloat16", "value.last-key-lost-at-length",
    ),
)  # fmt: skip
def oracle(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output equals the float64 reference on the same weights.

    Bound: 8 x the error of the reference in the target's own dtype, and at least 64 eps of the output. Sees what
    symmetry and masks cannot: scale, order of heads, which head reads which key.
    """
    if oracle is None:
        raise Inapplicable("no known reading of the target's weights gives its output")
    allowed = None
    if case["mask"] == "causal":
        allowed = triangle(case) if "TS" in subject.masks else None
    elif case["mask"] != "none":
        allowed = random_mask(case["mask"], subject, case)
    inputs = subject.draw(case)
    got = answered(subject.attempt(inputs, allowed, case))
    want, bound = expected(subject, oracle, got)
    close(got, want.out, bound, "against the float64 reference on the same weights")
    if (
        got.weights is not None
        and got.weights.shape == (case.N, subject.heads, case.T, case.S)
        and want.weights is not None
    ):
        error = float((got.weights.detach().cpu().double() - want.weights.detach()).abs().max())
        if not error <= max(bound, 64 * torch.finfo(subject.dtype).eps):
            fail(f"the returned weights are off by {error:.2g} from the reference", got, test="")


def expected(subject: Subject, oracle: Subject, got: Answer) -> tuple[Answer, float]:
    """The reference's answer in float64, and the bound that follows from its error in the target's dtype."""
    plain = oracle_case(oracle, got.case)
    want = answered(oracle.attempt(got.inputs.to(torch.float64), got.allowed, plain))
    same = answered(oracle.at(subject.dtype).attempt(got.inputs, got.allowed, plain))
    error = float((same.out.double() - want.out).abs().max())
    return want, max(8 * error, 64 * torch.finfo(subject.dtype).eps * float(want.out.abs().max()))


def oracle_case(oracle: Subject, case: Case) -> Case:
    """The same sizes in eval mode, with the oracle's own options."""
    return case.but(mode="eval no-grad", strided=False, options={k: v[-1] for k, v in oracle.options.items()})
