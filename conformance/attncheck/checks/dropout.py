"""Dropout: where it acts and how much it drops. N batch, T queries, S keys, h heads, p the rate

All draws are made under a fixed seed, so that a verdict is the same in every run. The rates of false alarms that are
stated are those of the seed: the chance that a sound target would have been accused under it.
"""

import math

import torch
from torch import Tensor

from attncheck.compare import Inapplicable, answered, fail
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.subject import Answer, Case, Subject
from attncheck.truth import shared_oracle

SAMPLES = 2048
REPEATS = 1024
# Two-sided normal quantile of 1e-9.
FAR = 6.11


def dropping(subject: Subject, p: float = 0.3) -> Subject:
    twin = subject.with_dropout(p)
    if twin is None or "train" not in subject.modes:
        raise Inapplicable("has no dropout that could be set")
    return twin


def one_sample(subject: Subject, case: Case) -> Inputs:
    """One sample with scores far from 0, since dropped scores of 0 would not show."""
    return subject.draw(case.but(N=1)).scaled(3.0)


def repeated(subject: Subject, case: Case) -> Answer:
    """Many copies of one sample, answered in training with dropout on."""
    many = one_sample(subject, case).map(
        lambda name, x: (x.repeat(REPEATS, *[1] * (x.ndim - 1)), f"{name}.repeat({REPEATS}{', 1' * (x.ndim - 1)})")
    )
    return answered(dropping(subject).attempt(many, None, case.but(N=REPEATS), seed=3))


@check(
    "dropout.site",
    strength=1,
    where=lambda case: 2 < case.S < 10,
    modes=("train",),
    sizes=1,
    faults=(
        "dropout.on-scores",
        "dropout.not-rescaled",
        "dropout.whole-rows",
        "dropout.renormalised",
        "dropout.per-batch",
    ),
)
def site(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Dropout acts on normalised weights: on average it changes nothing, and no whole row is dropped.

    With p = 0.3 the mean of 1024 draws is the output without dropout, within 6.1 standard errors of each
    element (a false alarm in 1e-9 of elements, and at most 1e-6 of checks), and no two samples with different
    tokens give equal outputs.

    Why: dropped scores are no zero weights, weights that are not scaled by 1 / (1 - p) shrink the output in
    training, and whole rows that vanish leave queries without any attention.
    Fix: weights = dropout(softmax(scores)), by nn.Dropout.
    Blind: a second dropout on the output, which is common, and which it cannot tell from one on values; the mean of a
    target that the reference does not read.
    Earns: it is the only check that looks at the numbers of dropout.
    """
    evaluated = answered(subject.attempt(one_sample(subject, case), None, case.but(N=1, mode="eval")))
    dropped = repeated(subject, case)
    draws = dropped.out.double()
    if bool((draws == draws[:1]).all()) and not torch.equal(draws[0], evaluated.out[0].double()):
        fail(f"{REPEATS} equal samples dropped the very same weights", dropped,
             test="assert not torch.equal(before, before[:1].expand_as(before))")  # fmt: skip
    # A norm behind the dropout, or one that may be there, bends the mean.
    if oracle is not None and oracle.adapter.ends_linear:
        _mean_stays(evaluated, dropped)
    _no_row_vanishes(subject, case)


def _mean_stays(evaluated: Answer, dropped: Answer) -> None:
    draws, usual = dropped.out.double(), evaluated.out[0].double()
    error = (draws.mean(0) - usual).abs()
    # The sampling error of the standard error itself is a few per cent at this size.
    bound = 1.1 * FAR * draws.std(0) / math.sqrt(REPEATS) + 1e-5 * usual.abs().max()
    if not bool((error <= bound).all()):
        index = tuple(int(i) for i in torch.unravel_index((error / bound).argmax(), error.shape))
        told = f"mean of {REPEATS} draws with p = 0.3: output{list(index)} is {draws.mean(0)[index]:.4g} in training"
        told = f"{told}, {float(usual[index]):.4g} in evaluation (bound of the difference {float(bound[index]):.2g})"
        fail(told, dropped, test=_mean_test(index, float(usual[index]), float(bound[index])))


def _mean_test(index: tuple[int, ...], usual: float, bound: float) -> str:
    place = ", ".join(map(str, index))
    return f"assert abs(before.double().mean(0)[{place}].item() - {usual!r}) <= {bound!r}"


def _no_row_vanishes(subject: Subject, case: Case) -> None:
    """A query that lost all of its keys in all heads gives the output bias, and so does the next one."""
    case = case.but(N=64, T=16, S=16)
    answer = answered(dropping(subject).attempt(subject.draw(case), None, case, seed=4))
    if not bool((subject.pattern(case.T, 16).sum(-1) > 8).any()):
        raise Inapplicable("its window is too narrow")
    rows = answer.out.flatten(0, -2) if answer.out.ndim == 3 else answer.out[:, 0].flatten(0, 1)
    seen_T = subject.pattern(case.T, 16).sum(-1) > 8
    rows = rows.reshape(64, -1, rows.shape[-1])[:, seen_T].flatten(0, 1)
    counts = torch.unique(rows, dim=0, return_counts=True)[1]
    if int(counts.max()) > 1:
        fail(f"{int(counts.max())} of {len(rows)} queries, all with different tokens, have the very same output in "
             "training: whole rows of weights were dropped", answer,
             test="rows = before.flatten(0, -2)\nassert len(rows.unique(dim=0)) == len(rows)")  # fmt: skip


@check(
    "dropout.rate",
    kinds=("attention",),
    strength=1,
    modes=("train",),
    sizes=1,
    faults=("dropout.keeps-instead", "dropout.halved-rate"),
)
def rate(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The share of dropped weights is the declared rate.

    With one query and one key in 2048 samples, the output does not depend on the key where it was dropped in
    all h heads: that count is binomial with p^h. Its bounds have a false-alarm rate of 1e-9; p is set so that
    p^h is near 0.1.

    Why: p and 1 - p are easily confused, and a rate that is passed on twice or halved still looks like dropout.
    Fix: give nn.Dropout(p) the probability to drop.
    Blind: targets that the reference cannot read: there h and a residual path are not known.
    Earns: it is the only check that counts what was dropped.
    """
    if not shared_oracle(oracle).adapter.ends_linear:
        raise Inapplicable("a norm behind the output hides which weights were dropped")
    if (subject.says("weight_sum") or "one") != "one":
        raise Inapplicable("with a null key the weight of a single key is not 1")
    one = case.but(T=1, S=1, N=SAMPLES)
    p = round(0.1 ** (1 / subject.heads), 2)
    twin = dropping(subject, p)
    answer = answered(twin.attempt(subject.draw(one).fresh(), None, one, seed=5))
    if not answer.output.requires_grad:
        raise Inapplicable("the output carries no gradient")
    lost = _dropped(answer)
    low, high = binomial_bounds(SAMPLES, p**subject.heads)
    if lost <= binomial_bounds(SAMPLES, p ** answer.out.shape[-1])[1]:
        raise Inapplicable("drops no weights, only features of the output")
    if not low <= lost <= high:
        told = f"{lost} of {SAMPLES} keys were dropped in all {subject.heads} heads with p = {p}"
        fail(f"{told}, expected {low} to {high}", answer, test=_COUNT.format(low=low, high=high))


_COUNT = """\
(grad,) = torch.autograd.grad(before.sum(), value)
lost = int((grad == 0).flatten(1).all(1).sum())
assert {low} <= lost <= {high}, lost"""


def _dropped(answer: Answer) -> int:
    (grad,) = torch.autograd.grad(answer.output.sum(), answer.inputs.value, allow_unused=True, materialize_grads=True)
    return int((grad == 0).flatten(1).all(1).sum())


def binomial_bounds(n: int, p: float, alarm: float = 1e-9) -> tuple[int, int]:
    """The smallest interval around the mean outside of which each tail has less than half of `alarm`."""
    k = torch.arange(n + 1, dtype=torch.float64)
    log = torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64)) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    mass: Tensor = (log + k * math.log(p) + (n - k) * math.log1p(-p)).exp()
    below, above = mass.cumsum(0), mass.flip(0).cumsum(0).flip(0)
    low = int((below < alarm / 2).sum())
    high = n - int((above < alarm / 2).sum())
    return low, high
