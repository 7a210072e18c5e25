"""Masks: what True means, that it hides exactly what it should, in every shape and for every head.

N batch, h heads, T queries, S keys
"""

import torch
from torch import Tensor

from attncheck.allowed import full_mask, keys_to_edit, random_mask, several_keys
from attncheck.compare import answered, changed, close, fail, literal, premise, tolerance_of, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Subject


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

    Why: True means "may attend" in one API and "is blocked" in the next. Read the other way round, a mask shows
    each query exactly what it should not see, and training still converges.
    Fix: Convert the mask once, where it enters (~mask, or masked_fill(~allowed, -inf) for an additive one), and say
    in the docstring what True means. Never cast an additive mask to bool: 0 means allowed there and becomes False.
    Blind: It compares medians over three keys, so that a few keys or heads that are masked wrongly pass; whether a
    blocked key is hidden completely, `mask.blocked-keys` asks.
    Earns: It alone tells an inversion from a mask without effect and from one that only weakens keys; the others
    just see a blocked key act.
    """
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    acts, leaks, worst = [torch.empty(0)], [torch.empty(0)], (-1.0, before, torch.empty(0))
    for s in keys_to_edit(case):
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

    Why: A blocked key that still weighs a little leaks padding, later tokens or other documents, and the loss only
    looks better for it. A finite fill or a mask after softmax hides until scores are large.
    Fix: Put -inf into the scores before softmax, masked_fill(~allowed, float("-inf")), on every path: with weights,
    without gradients, in training, and for a batch of one.
    Blind: Edits both ends and one key between. A leak of rounding size is reported and not called one; keys that
    are blocked in some heads only, queries without any key, NaN stored in a blocked key, and dropout are not looked
    at.
    """
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    size, inputs = 1e4 if case["size"] == "edit x1e4" else 1.0, subject.draw(case)
    if case["size"] == "scores x1e5":
        # In self-attention the keys grow too, so that the scores grow as much.
        inputs = inputs.scaled(316.0 if inputs.tied else 1e5)
    before = answered(subject.attempt(inputs, allowed, case))
    judged = False
    for s in keys_to_edit(case):
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
    """Editing a key and value that a query may see changes its output.

    Why: A mask that hides too much loses context, and no leak test can see it: a constant output leaks nothing.
    Fix: Look for a triangle or a padding mask that is one key too strict, and for a mask of one head or sample that
    is used for all.
    Blind: How much a key acts. A key that is seen in any head counts as seen, three keys are tried, and in
    self-attention the query of the edited token itself is not judged.
    Earns: It is the other half of `mask.blocked-keys`: a mask that hides all keys but one, or a head that is lost,
    passes there.
    """
    allowed = random_mask(case["mask"], subject, case)
    sight = Sight(subject, allowed, case)
    inputs = subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    for s in keys_to_edit(case):
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
    """A mask in a broadcastable shape acts as the same mask written out, sample by sample and head by head.

    Why: A mask of one row a sample that lines up with heads instead, or that is tiled in another order than the
    heads, gives one sample the padding of another. With one sample, or equal lengths, it is right.
    Fix: Give the mask its four axes explicitly, mask[:, None, None, :] for padding and mask[:, None] for (N,T,S),
    and let it broadcast. Where heads lie in the batch, use repeat_interleave(h, 0), not repeat(h, 1, 1).
    Blind: A mistake that is made for short and written-out masks alike and in a sample alone too. Where the target
    does not take (N,h,T,S), only the sample alone is compared. The bound is numeric.
    """
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
        rows = Sight(subject, allowed, case).judged
        close(short, full.out, tolerance_of(short), what, (full, "before"), rows=rows)
    _sample_alone(subject, case, allowed, short)


def _sample_alone(subject: Subject, case: Case, allowed: Tensor, together: Answer) -> None:
    """Sample n of the batch is what it is alone under its own mask."""
    n = case.N - 1
    own = allowed[n:] if allowed.ndim == 4 and allowed.shape[0] > 1 else allowed
    alone = answered(subject.attempt(together.inputs.reindexed([n], 0), own, case.but(N=1, strided=False)))
    what = f"sample {n} alone, under its own mask, against the batch"
    close(alone, together.out[n:], tolerance_of(together), what, (together, f"before[{n}:]"))
