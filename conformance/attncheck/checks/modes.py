"""Modes: training without dropout is evaluation, evaluation never draws, and all paths give one answer."""

import torch

from attncheck.allowed import mask_of
from attncheck.compare import Inapplicable, answered, close, fail, tolerance_of, unchanged
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import Answer, Case, Subject


@check(
    "modes.train-eval",
    where=lambda case: case.S > 1,
    faults=("dropout.on-in-eval", "dropout.off-after-eval", "modes.scaled-in-training", "dropout.never"),
)
def train_eval(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Training with p = 0 equals evaluation; with p = 0.5 evaluation draws nothing, training does, also after eval.

    Why: Dropout that stays on makes evaluation random; dropout that is off for good after the first evaluation
    makes the rest of the training another one. Neither fails anywhere.
    Fix: Pass dropout_p=self.p if self.training else 0.0 to functional calls, never write to the stored rate, and
    use the mode for nothing but dropout.
    Blind: The rate, the place and the scaling of dropout. Rates are found by their names; where none is found, only
    training with p = 0 against evaluation is compared.
    """
    inputs = subject.draw(case)
    evaluated = answered(subject.attempt(inputs, None, case.but(mode="eval")))
    if "train" in subject.modes:
        trained = answered(subject.attempt(inputs, None, case.but(mode="train")))
        close(
            trained,
            evaluated.out,
            tolerance_of(evaluated),
            "training with p = 0 against evaluation",
            (evaluated, "before"),
        )
    dropping = subject.with_dropout(0.5)
    if dropping is None:
        if "train" not in subject.modes:
            raise Inapplicable("has no training mode")
        return
    everywhere = torch.ones(case.N, case.T, dtype=torch.bool)
    first = answered(dropping.attempt(inputs, None, case.but(mode="eval"), seed=1))
    unchanged(first, answered(dropping.attempt(inputs, None, case.but(mode="eval"), seed=2)), everywhere,
              "two evaluations with p = 0.5")  # fmt: skip
    if all(torch.equal(_train(dropping, inputs, case, seed=i).out, first.out) for i in range(8)):
        test = "target.train()\nagain, _ = call(query, key, value, allowed)\nassert not torch.equal(again, before)"
        fail("in training with p = 0.5, after an evaluation, eight calls drew nothing", first, test=test)


def _train(subject: Subject, inputs: Inputs, case: Case, seed: int) -> Answer:
    return answered(subject.attempt(inputs, None, case.but(mode="train"), seed))


@check(
    "modes.paths-agree",
    axes={"mask": ("none", "TS", "N11S")},
    where=lambda case: case.S > 1,
    faults=("scale.missing-without-grad", "scale.missing-with-weights", "modes.no-bias-in-training-without-grad"),
)
def paths_agree(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Every mode and option gives the answer of the plain call: gradients or none, weights asked for or not.

    Judged for queries that have a key and are no padding; numeric, since paths add up in another order.

    Why: a fast path is chosen by mode and options, and is the one that the tests of its author did not take.
    Fix: compare both paths in a test of your own, in evaluation, with and without a mask.
    Blind: paths that no mode, option, dtype or size chooses.
    Earns: it needs no oracle.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    first = case.but(mode=subject.modes[0], options={k: values[0] for k, values in subject.options.items()})
    before = answered(subject.attempt(inputs, allowed, first))
    after = answered(subject.attempt(inputs, allowed, case))
    judged = Sight(subject, allowed, case).judged
    path = f"[{case.mode}{''.join(f', {k}={v}' for k, v in case.options.items())}]"
    close(after, before.out, tolerance_of(before), f"{path} against the plain call", (before, "before"), rows=judged)
