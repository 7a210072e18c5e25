"""Masks of every form: which head they reach, two at once, other types. N batch, h heads, T queries, S keys"""

import torch

from attncheck.allowed import keys_to_edit, mask_of, random_mask, real_tokens, several_keys, triangle
from attncheck.compare import Inapplicable, answered, changed, close, fail, premise, tolerance_of, unchanged
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Answer, Case, Subject


@check(
    "mask.per-head",
    needs=("mask",),
    where=several_keys,
    axes={"mask": ("1hTS", "NhTS")},
    faults=("mask.heads-reversed", "mask.last-head-unmasked", "mask.first-head-for-all"),
)
def per_head(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A mask that differs from head to head reaches its own head.

    Judged by the returned weights of each head; for a kernel by editing keys of one head.

    Why: a mask (N*h,T,S) in head-major order, or one that is aligned from the wrong end, hides other heads' keys.
    Fix: expand to (N,h,T,S) first, and flatten sample by sample.
    Blind: targets that return no weights of single heads; there numeric.oracle looks.
    Earns: where weights are not returned by head, an output mixes the heads, and only the oracle sees the order.
    """
    if subject.heads == 1:
        raise Inapplicable("has one head")
    allowed, inputs = random_mask(case["mask"], subject, case), subject.draw(case)
    answer = answered(subject.attempt(inputs, allowed, case))
    sight = Sight(subject, allowed, case)
    shape = (case.N, subject.heads, case.T, case.S)
    if sight.by_head:
        _edits_reach_their_head(subject, answer, sight)
    elif answer.weights is not None and answer.weights.shape == shape:
        _weights_lie_where_allowed(answer, sight)
    else:
        raise Inapplicable("returns no weights of single heads here")


def _edits_reach_their_head(subject: Subject, before: Answer, sight: Sight) -> None:
    for s in keys_to_edit(before.case):
        after = answered(subject.attempt(before.inputs.edited([s], before.case.seed), before.allowed, before.case))
        for rows, compare in ((sight.blind([s]), unchanged), (sight.seeing([s]), changed)):
            if rows.any():
                compare(before, after, rows, f"key {s} was edited")


def _weights_lie_where_allowed(answer: Answer, sight: Sight) -> None:
    assert answer.weights is not None
    wrong = ((answer.weights.detach().cpu() != 0) & ~sight.visible_NhTS & sight.judged[:, None, :, None]).nonzero()
    if len(wrong):
        n, h, t, s = wrong[0].tolist()
        value = float(answer.weights[n, h, t, s])
        told = f"head {h} of sample {n} gives key {s} the weight {value:.3g} for query {t}"
        test = f"assert before_weights[{n}, {h}, {t}, {s}] == 0"
        fail(f"{told}, though its own mask blocks it", answer, test=test)


@check(
    "mask.combined",
    needs=("mask",),
    where=lambda case: case.S > 2 and case.T > 1,
    axes={"mask": ("N1TS",), "dropout": (False, True)},
    faults=("mask.dropped-under-dropout", "mask.replaced-by-causal", "causal.dropped-under-mask"),
)
def combined(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Causality and padding together hide what either hides, also with dropout on and when weights are asked for.

    Exact, and under dropout too: both calls draw the same numbers.

    Why: a causal flag, dropout or a request for weights often switches to another path, which has lost a mask.
    Fix: combine all masks into one before any path is chosen.
    Blind: options that no argument of the call or the constructor is named for.
    Earns: it is the only check that looks at masks while dropout is on.
    """
    causal = subject.causality != "no"
    real = real_tokens(case, subject)
    real[..., 0] = True  # so that the first query of a triangle has a key
    allowed = (real if causal else real & triangle(case)).expand(case.N, 1, case.T, case.S)
    if not bool(subject.visible(allowed, case).any(-1).all()):
        raise Inapplicable("the target's own pattern and padding leave a query without a key")
    dropping = (subject.with_dropout(0.5) or subject) if case["dropout"] else subject
    sight, inputs = Sight(subject, allowed, case), subject.draw(case)
    before = answered(dropping.attempt(inputs, allowed, case))
    for s in keys_to_edit(case):
        rows = sight.blind([s])
        if rows.any():
            after = answered(dropping.attempt(inputs.edited([s], case.seed), allowed, case))
            unchanged(before, after, rows, f"key {s} is padding or later, but when edited")


@check(
    "mask.forms-agree",
    needs=("mask",),
    where=several_keys,
    axes={"mask": ("TS", "N11S", "N1TS")},
    faults=("mask.additive-read-as-bool", "mask.additive-multiplied", "mask.additive-forgets-first-key"),
)
def forms_agree(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A mask gives one answer, whether it is handed over as bool, as 0 and -inf, as integers or by a flag.

    A form that is refused is none of the target's.

    Why: code that converts one form into another inverts it, as ~ does on integers or .bool() on 0 and -inf.
    Fix: convert by comparison (mask == 0, mask == -inf), once, at the start of forward.
    Blind: forms that neither an adapter nor the probing of the target knows.
    Earns: it says that the two forms disagree, where the others see one of them fail.
    """
    forms = subject.options.get("mask", ())
    if len(forms) < 2:
        raise Inapplicable("takes masks in one form")
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    plain = case.but(options={**case.options, "mask": forms[0]})
    other = case if case.options["mask"] != forms[0] else case.but(options={**case.options, "mask": forms[1]})
    before = answered(subject.attempt(inputs, allowed, plain))
    after = subject.attempt(inputs, allowed, other)
    if not isinstance(after, Answer):
        raise Inapplicable(f"refused: {after}")
    judged = Sight(subject, allowed, case).judged
    what = f"the mask as {other.options['mask']} against the same as {forms[0]}"
    close(answered(after), before.out, tolerance_of(before), what, (before, "before"), rows=judged)


@check(
    "mask.renormalised",
    needs=("mask",),
    where=several_keys,
    axes={"mask": ("N11S", "TS"), "scores": ("plain", "x300")},
    faults=("mask.multiplied-and-renormalised", "mask.after-softmax"),
)
def renormalised(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Blocked keys are as good as absent: without them the output is the same, also where scores are large.

    Numeric, since sums are taken over another length.

    Why: weights that are masked after softmax and divided by their sum are right for small scores only; for
    large ones the allowed weights underflow to 0.
    Fix: mask the scores, then take the softmax.
    Blind: built-in causality and positions, under which the left-out keys move the others.
    Earns: it needs no oracle and sees what a sum of weights hides.
    """
    if not bool(subject.pattern(case.T, case.S).all()) or subject.says("positions") not in (None, "none"):
        raise Inapplicable("the target is causal, windowed or has positions, so that leaving keys out moves others")
    inputs = subject.draw(case)
    inputs = inputs if case["scores"] == "plain" else inputs.scaled(18.0 if inputs.tied else 300.0)
    kept = sorted({(case.seed + i * (2 if case.S > 4 else 1)) % case.S for i in range(max(case.S // 2, 1))})
    allowed_S = torch.zeros(case.S, dtype=torch.bool).index_fill(0, torch.tensor(kept), True)
    allowed = (
        allowed_S.expand(case.T, case.S) if case["mask"] == "TS" else allowed_S.expand(case.N, 1, 1, case.S)
    ).contiguous()
    masked = answered(subject.attempt(inputs, allowed, case))
    names = "query key value" if inputs.tied else "key value"
    T = len(kept) if inputs.tied else case.T
    without = answered(subject.attempt(inputs.reindexed(kept, -2, names), None, case.but(T=T, S=len(kept))))
    premise(len(kept) < case.S, "no key is blocked")
    rows = kept if inputs.tied else list(range(case.T))
    want, told = masked.out[..., rows, :], f"before[..., {rows}, :]"
    close(
        without,
        want,
        tolerance_of(without),
        f"keys {kept} alone against all of them, the others masked",
        (masked, told),
    )
