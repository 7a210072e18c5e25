"""Returned attention weights. N batch, h heads, T queries, S keys"""

import torch

from attncheck.allowed import mask_of
from attncheck.compare import Inapplicable, answered, close, fail, floor_of, premise, tolerance, tolerance_of
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Subject
from attncheck.truth import shared_oracle


@check(
    "weights.rows-sum",
    needs=("weights",),
    axes={"mask": ("none", *MASK_AXES)},
    faults=("softmax.query-axis", "softmax.head-axis", "softmax.extra-one", "mask.after-softmax", "weights.are-scores"),
)
def rows_sum(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The weights of a query are never negative, sum to 1 over the keys it may see, and are 0 on the others.

    Before dropout. Judged for targets that return weights; `weight_sum = below-one` lifts the sum from below.

    Why: Softmax over another axis, or a mask after it, gives weights that do not add up. Training adapts to that,
    and every plot of the attention is wrong.
    Fix: Softmax over the last axis of scores (N,h,T,S), masked before it; return the weights before dropout.
    Blind: Targets that return no weights, and whether the output was made with the returned ones. Queries without a
    key and padded queries are not judged, and averaged weights hide an exchange of heads.
    Earns: It needs no reference: where the target's parameters cannot be read, it alone sees rows that sum to less
    than 1 or scores returned as weights.
    """
    allowed = mask_of(subject, case)
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


@check(
    "weights.give-output",
    kinds=("attention",),
    needs=("weights",),
    axes={"mask": ("none", "TS", "N11S", "1hTS")},
    faults=("weights.heads-reversed", "weights.averaged-on-request", "scale.missing-with-weights"),
)
def give_output(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The returned weights, times the values, give the output; and asking for them does not change it.

    The values are those of the reference on the same weights; where there is none, only the second half is judged.

    Why: attention maps that are not those of the model explain another model.
    Fix: return what was multiplied with the values, before dropout, and compute it on every path in one way.
    Blind: averaged weights, of which only the second half is asked.
    Earns: it looks at the returned weights as a claim about the output.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    judged = Sight(subject, allowed, case).judged
    asked = answered(subject.attempt(inputs, allowed, _asking(case, True)))
    if "weights" in subject.options:
        plain = answered(subject.attempt(inputs, allowed, _asking(case, False)))
        what = "with weights asked for against without"
        close(asked, plain.out, tolerance_of(plain), what, (plain, "before"), rows=judged)
    shape = (case.N, subject.heads, case.T, case.S)
    if oracle is None or asked.weights is None or asked.weights.shape != shape:
        return
    if (subject.says("weight_sum") or "one") != "one":
        return
    weights = asked.weights.detach().cpu().double()
    parts_NhSD, bias_D = oracle.adapter.contributions(inputs.value.detach().cpu().double())
    mixed_NTD = torch.einsum("nhts,nhsd->ntd", weights.nan_to_num(0.0), parts_NhSD) + bias_D
    off = float((asked.out.double() - mixed_NTD).abs().amax(-1).masked_fill(~judged, 0.0).max())
    bound = floor_of(asked, mixed_NTD)
    if not off <= bound:
        bound = max(bound, tolerance(asked))
    if off <= bound:
        return
    told = f"the output differs by {off:.2g} (bound {bound:.1g}) from the returned weights times the values"
    fail(told, asked, test=_MIX.format(parts=parts_NhSD.tolist(), bias=bias_D.tolist(), judged=judged.tolist(),
                                       bound=bound))  # fmt: skip


_MIX = """\
parts, bias = torch.tensor({parts}), torch.tensor({bias})  # what each key of each head adds to the output, and the rest
mixed = torch.einsum("nhts,nhsd->ntd", before_weights.float(), parts) + bias
assert ((before - mixed).abs().amax(-1)[torch.tensor({judged})] <= max({bound!r}, 1e-5)).all()"""


def _asking(case: Case, weights: bool) -> Case:
    return case.but(options={**case.options, "weights": weights}) if "weights" in case.options else case


@check(
    "weights.shift",
    needs=("bias",),
    where=lambda case: case.S > 1,
    axes={"constant": (3.0, -200.0)},
    faults=("scores.clamped-under-mask", "softmax.maximum-of-all", "mask.additive-read-as-bool"),
)
def shift(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A constant that is added to all scores of a query, by a float mask, changes nothing.

    Why: softmax depends on differences of scores only; what breaks that clamps, rounds or reads the mask otherwise.
    Fix: add the mask to the scores as it is, after scaling, and normalise by torch.softmax.
    Blind: a bias that is scaled along with the scores, which numeric.oracle sees.
    Earns: it needs no oracle.
    """
    if subject.says("softcap") or (subject.says("weight_sum") or "one") != "one":
        raise Inapplicable("a soft cap or a null key is no function of differences")
    case = case.but(options={**case.options, **({"mask": "additive"} if "mask" in case.options else {})})
    inputs, zero = subject.draw(case), torch.zeros(case.T, case.S)
    before = answered(subject.attempt(inputs, zero, case))
    rows = torch.linspace(0.5, 1.0, case.T)[:, None].expand(-1, case.S).contiguous()
    after = answered(subject.attempt(inputs, zero + case["constant"] * rows, case))
    rounding = 8 * torch.finfo(subject.dtype).eps * abs(case["constant"]) * float(before.out.abs().max())
    bound = tolerance_of(before)
    close(
        after,
        before.out,
        lambda: bound() + rounding,
        f"with up to {case['constant']:g} added to each query's scores",
        (before, "before"),
    )


@check(
    "weights.scale",
    kinds=("attention",),
    needs=("weights",),
    strength=1,
    where=lambda case: case.S > 2,
    faults=("scale.none", "scale.by-model-width", "scale.by-heads", "scale.last-head-twice"),
)
def scale(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The returned weights are those of scores times the declared scale, 1/sqrt(d) where none is declared.

    Read off each head: differences of log-weights over differences of unscaled scores of the reference.

    Why: a wrong temperature trains, and every symmetry holds; only h, D and d that differ tell 1/sqrt(d) from
    the rest.
    Fix: divide by the square root of the width of one head; or declare `scale` if another one is meant.
    Blind: targets that return no weights by head; there numeric.oracle looks.
    Earns: it says by which factor, and in which head.
    """
    oracle = shared_oracle(oracle)
    usual = ("weight_sum", "softcap")
    if any(subject.says(k) not in (None, "one") for k in usual) or subject.says("scale") == "learned":
        raise Inapplicable("the weights are no plain softmax of scaled scores")
    if not oracle.adapter.one_factor:
        raise Inapplicable("its scores have a bias of positions, or a factor of each head")
    case, allowed = _asking(case, True), None
    answer = answered(subject.attempt(subject.draw(case), allowed, case))
    if answer.weights is None or answer.weights.shape != (case.N, subject.heads, case.T, case.S):
        raise Inapplicable("returns no weights of single heads here")
    scores, factor = oracle.adapter.scores(answer.inputs.to(torch.float64)), oracle.adapter.factor
    seen = Sight(subject, allowed, case).visible_NhTS
    premise(bool((seen.sum(-1) > 1).any()), "no query sees two keys")
    logs = answer.weights.detach().cpu().double().log()
    keep = seen & logs.isfinite() & (logs > -12)
    fitted_h = _slopes(scores, logs, keep)
    wrong = (fitted_h / factor - 1).abs() > 1e-3
    if bool(wrong.any()):
        head = int(wrong.nonzero()[0])
        told = f"head {head} scales its scores by {float(fitted_h[head]):.4g}, expected {factor:.4g}"
        pairs = "the weights follow from scores of the reference"
        fail(told, answer, test=_SCALE.format(head=head, scores=scores[0, head].tolist(), told=pairs, factor=factor,
                                              keep=keep[0, head].tolist()))  # fmt: skip


_SCALE = """\
scores, keep = torch.tensor({scores}), torch.tensor({keep})  # unscaled; {told}
want = (scores * {factor}).masked_fill(~keep, -torch.inf).softmax(-1)
got = before_weights[0, {head}].masked_fill(~keep, 0)
assert torch.allclose(got / got.sum(-1, keepdim=True), want.nan_to_num(0), rtol=0, atol=1e-4)"""


def _slopes(scores: torch.Tensor, logs: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Least squares of log-weights on scores, each centred over the keys of its query; one slope a head."""
    count = keep.sum(-1, keepdim=True).clamp(min=1)
    x, y = ((v.masked_fill(~keep, 0.0)) for v in (scores, logs))
    x = (x - x.sum(-1, keepdim=True) / count).masked_fill(~keep, 0.0)
    y = (y - y.sum(-1, keepdim=True) / count).masked_fill(~keep, 0.0)
    return (x * y).sum((0, 2, 3)) / (x * x).sum((0, 2, 3))
