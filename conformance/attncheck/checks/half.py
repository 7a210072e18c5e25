"""Few bits and large numbers. N batch, T queries, S keys"""

import torch

from attncheck.allowed import keys_to_edit, mask_of, random_mask, several_keys, triangle
from attncheck.compare import Inapplicable, answered, close, fail, finite, unchanged
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Case, Refusal, Subject
from attncheck.truth import expected, shared_oracle


@check(
    "mask.half-fill",
    needs=("mask",),
    where=several_keys,
    axes={"mask": ("TS", "N11S", "N1TS"), "dtype": ("float16", "bfloat16"), "causal": (False, True)},
    faults=("mask.fill-minus-1e9", "mask.fill-overflows-to-nan"),
)
def half_fill(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """In float16 and bfloat16 a mask neither overflows nor gives NaN, and hides what it hides in float32.

    Why: -1e9 does not fit into float16, and the lowest number twice is -inf: half precision raises, or gives NaN,
    where float32 was right.
    Fix: Fill with float("-inf"), or with torch.finfo(scores.dtype).min once, after all masks were combined by
    logical AND.
    Blind: Autocast, kernels of other devices than the one that it ran on, and the accuracy in half precision. A
    fill that fits and is too weak, as -1e4, is left to `mask.blocked-keys`.
    """
    twin = subject.at(getattr(torch, case["dtype"]))
    inputs = twin.draw(case)
    plain = twin.attempt(inputs, None, case)
    if isinstance(plain, Refusal):
        raise Inapplicable(f"{case['dtype']} is refused even without a mask: {plain}")
    allowed = random_mask(case["mask"], subject, case)
    if case["causal"] and "TS" in subject.masks:
        allowed = triangle(case) if allowed.ndim == 2 else allowed
    sight = Sight(subject, allowed, case)
    before = answered(twin.attempt(inputs, allowed, case))
    finite(before, sight.judged)
    for s in keys_to_edit(case)[-2:]:
        rows = sight.blind([s])
        if rows.any():
            after = answered(twin.attempt(inputs.edited([s], case.seed), allowed, case))
            unchanged(before, after, rows, f"in {case['dtype']} key {s} is blocked, but when edited")


@check(
    "numeric.half",
    where=several_keys,
    axes={"mask": ("none", "TS", "N11S"), "dtype": ("float16", "bfloat16", "autocast")},
    strength=1,
    faults=("half.scale-lost", "half.output-in-float32", "half.weights-in-three-bits"),
)
def half(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """In float16 and bfloat16 the output keeps its dtype, and is as near to float64 as the same mathematics is.

    Bound: 8 x the error of the reference in that dtype. Under autocast to bfloat16 the output may be of either dtype.

    Why: a path of its own for half precision is seldom tested, and its errors look like ordinary rounding.
    Fix: compute scores and softmax in float32 where the path differs, and cast the output back.
    Blind: devices other than the one it runs on; targets that take no half precision.
    """
    oracle = shared_oracle(oracle)
    cast = case["dtype"] == "autocast"
    twin = subject if cast else subject.at(getattr(torch, case["dtype"]))
    allowed, inputs = mask_of(subject, case), twin.draw(case)
    with torch.autocast("cpu", torch.bfloat16, enabled=cast):
        got = twin.attempt(inputs, allowed, case)
    if isinstance(got, Refusal):
        if "without overflow" in str(got):
            fail(f"in {case['dtype']} the call raised {got}: a number in it does not fit", got)
        raise Inapplicable(f"{case['dtype']} is refused: {got}")
    answered(got)
    if not cast and got.out.dtype != twin.dtype:
        fail(f"the output is {got.out.dtype} for inputs of {twin.dtype}", got,
             test=f"assert before.dtype == {twin.dtype}, before.dtype")  # fmt: skip
    want, bound = expected(twin, oracle, got, torch.bfloat16 if cast else twin.dtype)
    judged = Sight(subject, allowed, case).judged
    close(got, want.out, bound, f"in {case['dtype']} against the float64 reference on the same weights", rows=judged)


@check(
    "numeric.extreme",
    where=several_keys,
    axes={"mask": ("none", "N1TS"), "scores": ("large", "equal", "one huge")},
    faults=("softmax.unstable", "scores.clamped-at-fifty"),
)
def extreme(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Scores of 1e4, scores that are all equal, and one that is huge give finite outputs, and the right ones.

    Right is what the float64 reference on the same weights says; where there is none, finite is all that is judged.

    Why: softmax that does not subtract the maximum overflows, and clamped scores forget which key was the strongest.
    Fix: use torch.softmax, or subtract the maximum of the row first.
    Blind: sizes at which the target's own projections overflow.
    """
    allowed, inputs = mask_of(subject, case), _extreme(case["scores"], subject.draw(case), case)
    got = answered(subject.attempt(inputs, allowed, case))
    judged = Sight(subject, allowed, case).judged
    finite(got, judged)
    if oracle is not None:
        want, bound = expected(subject, oracle, got)
        close(
            got, want.out, bound, f"with scores that are {case['scores']}, against the float64 reference", rows=judged
        )


def _extreme(scores: str, inputs: Inputs, case: Case) -> Inputs:
    """In self-attention a score grows with the square of the token."""
    if scores == "large":
        return inputs.scaled(100.0 if inputs.tied else 1e4)
    if scores == "equal":
        return inputs.reindexed([0] * case.S, -2, "query key value" if inputs.tied else "key value")
    return inputs.edited([case.S // 2], case.seed, 100.0)
