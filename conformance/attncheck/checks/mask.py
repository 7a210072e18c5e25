"""Masks: what True means, that it hides exactly what it should, in every shape and for every head.

N batch, h heads, T queries, S keys
"""

import torch
from torch import Tensor

from attncheck.allowed import full_mask, keys_to_edit, random_mask, triangle
from attncheck.compare import (
    Failure,
    Inapplicable,
    answered,
    changed,
    close,
    fail,
    finite,
    literal,
    premise,
    tolerance,
    unchanged,
)  # fmt: skip
from attncheck.deadrows import dead_mask, dead_test, policy_of
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Refusal, Subject


def several_keys(case: Case) -> bool:
    return case.S > 1


@check(
    "mask.polarity",
    needs=("mask",),
    where=several_keys,
    axes={"mask": MASK_AXES},
    faults=(
        "mask.inverted",
        "mask.ignored",
        "mask.soft",
        "mask.additive-read-as-bool",
        "mask.additive-multiplied",
        "mask.multiplied-into-scores",
        "mask.dropped-across",
    ),
)
def polarity(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """True in a mask means the same on every path, and what was declared.

    Compares how strongly allowed and blocked keys act, so that it names an inversion, a mask without effect and
    a soft mask; how hard a mask is, `mask.blocked-keys` asks.
    """
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    acts, leaks, worst = [torch.empty(0)], [torch.empty(0)], (-1.0, before, torch.empty(0))
    for s in keys_to_edit(case.S):
        after = answered(subject.attempt(inputs.edited([s], case.seed), allowed, case))
        moved = moved_by(before, after)
        unseen = sight.blind([s]) & subject.pattern(case.T, case.S)[:, s]
        acts.append(moved[sight.seeing([s], every_head=True)])
        leaks.append(moved[unseen])
        if unseen.any() and float(leaks[-1].max()) > worst[0]:
            worst = float(leaks[-1].max()), after, unseen
    strong, weak = torch.cat(acts), torch.cat(leaks)
    premise(len(strong) > 0 and len(weak) > 0, "no key is allowed for one query and blocked for another")
    if strong.median() == 0 or weak.median() > strong.median() / 10:
        fail(
            f"{_reading(subject, float(strong.median()), float(weak.median()))}: editing an allowed key moves the "
            f"output by {float(strong.median()):.2g}, a blocked one by {float(weak.median()):.2g} (medians)",
            before,
            worst[1],
            f"assert torch.equal(before[{literal(worst[2])}], after[{literal(worst[2])}])",
        )


def _reading(subject: Subject, strong: float, weak: float) -> str:
    declared = subject.conventions.get("mask")
    value = declared.value if declared else None
    told = (
        f"True was {declared.source} to mean {value}" if declared and value else "True should mean allowed or blocked"
    )
    told = f"the mask was {declared.source} to be additive" if declared and value == "additive" else told
    if strong == 0 and weak > 0:
        return f"{told}, but it works the other way round"
    return (
        f"{told}, but blocked keys act like allowed ones"
        if weak > strong / 2
        else f"{told}, but the mask only weakens keys"
    )


def moved_by(before: Answer, after: Answer) -> Tensor:
    """How far each output moved, where NaN counts as not at all."""
    return (before.out - after.out).abs().nan_to_num(0.0).amax(-1)


@check(
    "mask.blocked-keys",
    needs=("mask",),
    where=several_keys,
    axes={"mask": MASK_AXES, "size": ("plain", "edit x1e4", "scores x1e5")},
    faults=(
        "mask.fill-minus-1e4", "mask.after-softmax", "mask.multiplied-and-renormalised", "mask.dropped-with-weights",
        "mask.dropped-in-training", "mask.dropped-without-grad", "mask.last-head-unmasked", "mask.first-sample-for-all",
        "mask.ignored-at-batch-one", "mask.last-key-visible",
        "causal.dropped-under-mask",
        "softmax.unstable", "mask.query-axis",
    ),
)  # fmt: skip
def blocked_keys(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Editing a key or value that a query may not see does not change its output, bit for bit.

    Also with edits of 1e4 and queries times 1e5, where a finite fill is beaten by the scores.
    """
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    size, inputs = 1e4 if case["size"] == "edit x1e4" else 1.0, subject.draw(case)
    if case["size"] == "scores x1e5":
        # In self-attention the keys grow too, so that the scores grow as much.
        inputs = inputs.scaled(316.0 if inputs.tied else 1e5)
    before = answered(subject.attempt(inputs, allowed, case))
    judged = False
    for s in keys_to_edit(case.S):
        rows = sight.blind([s])
        if rows.any():
            after = answered(subject.attempt(inputs.edited([s], case.seed, size), allowed, case))
            unchanged(before, after, rows, f"key {s} is blocked ({case['size']}), but when edited")
            judged = True
    premise(judged, "the mask hides no key from a whole query")


@check(
    "mask.allowed-keys",
    needs=("mask",),
    where=several_keys,
    axes={"mask": MASK_AXES},
    faults=("mask.first-key-hidden", "mask.all-but-strongest", "mask.first-head-for-all", "value.constant"),
)
def allowed_keys(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Editing a key and value that a query may see changes its output."""
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    for s in keys_to_edit(case.S):
        rows = sight.seeing([s])
        if rows.any():
            after = answered(subject.attempt(inputs.edited([s], case.seed), allowed, case))
            changed(before, after, rows, f"key {s} is allowed, but when edited")


@check(
    "mask.broadcast",
    needs=("mask",),
    where=several_keys,
    axes={"mask": MASK_AXES},
    faults=("mask.heads-as-batch", "mask.head-major", "mask.first-sample-for-all"),
)
def broadcast(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A mask in a broadcastable shape acts as the same mask written out, sample by sample and head by head."""
    allowed = random_mask(case["mask"], subject, case)
    inputs = subject.draw(case)
    short = answered(subject.attempt(inputs, allowed, case))
    unmasked = answered(subject.attempt(inputs, None, case))
    hidden = subject.visible(None, case) & ~subject.visible(allowed, case)
    premise(hidden.any(), "the mask hides nothing that was in sight")
    if not (short.out != unmasked.out).any():
        fail("the mask changes no output", unmasked, short, "assert not torch.equal(before, after)")
    if "NhTS" in subject.masks:
        full = answered(subject.attempt(inputs, full_mask(allowed, subject, case), case))
        what = f"a mask of axes {case['mask']} against the same one written out"
        close(short, full.out, tolerance(short), what, (full, "before"))
    _sample_alone(subject, case, allowed, short)


def _sample_alone(subject: Subject, case: Case, allowed: Tensor, together: Answer) -> None:
    """Sample n of the batch is what it is alone under its own mask."""
    n = case.N - 1
    own = allowed[n:] if allowed.ndim == 4 and allowed.shape[0] > 1 else allowed
    alone = answered(subject.attempt(together.inputs.reindexed([n], 0), own, case.but(N=1, strided=False)))
    what = f"sample {n} alone, under its own mask, against the batch"
    close(alone, together.out[n:], tolerance(together), what, (together, f"before[{n}:]"))


@check(
    "mask.fully-masked",
    needs=("mask",),
    where=lambda case: case.T > 1 and case.S > 1,
    axes={"mask": ("N1TS", "TS", "N11S", "NhTS")},
    faults=(
        "mask.dead-rows-by-weights",
        "mask.dead-rows-uniform-by-weights",
        "mask.dead-rows-without-grad",
        "mask.dead-rows-in-training",
    ),
)
def fully_masked(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A query without an allowed key gives what was declared, and the same on every path of the target.

    Undeclared, each path is held against the first one; which policy it is, is the target's own choice.
    """
    mask, inputs = dead_mask(case["mask"], subject, case), subject.draw(case)
    first = case.but(
        mode=subject.modes[0], strided=False, options={k: values[0] for k, values in subject.options.items()}
    )
    policy, answer = policy_of(subject, inputs, mask, case)
    usual, usual_answer = policy_of(subject, inputs, mask, first)
    wanted = subject.says("fully_masked")
    if wanted not in (None, "undefined", policy):
        raise Failure(f"a fully masked row gives {policy}, declared is {wanted}", answer, test=dead_test(wanted, case))
    if policy != usual:
        before, after = (usual_answer, answer) if isinstance(answer, Answer) else (answer, None)
        raise Failure(
            f"a fully masked row gives {policy} in [{case}] and {usual} in [{first}]",
            before,
            after,
            "assert torch.allclose(before[0, ..., -2:, :], after[0, ..., -2:, :], equal_nan=True)",
        )


@check(
    "mask.half-fill",
    needs=("mask",),
    where=several_keys,
    axes={"mask": ("TS", "N11S", "N1TS"), "dtype": ("float16", "bfloat16"), "causal": (False, True)},
    faults=("mask.fill-minus-1e9", "mask.fill-overflows-to-nan"),
)
def half_fill(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """In float16 and bfloat16 a mask neither overflows nor gives NaN, and hides what it hides in float32."""
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
    for s in keys_to_edit(case.S):
        rows = sight.blind([s])
        if rows.any():
            after = answered(twin.attempt(inputs.edited([s], case.seed), allowed, case))
            unchanged(before, after, rows, f"in {case['dtype']} key {s} is blocked, but when edited")
