"""Modes: training without dropout is evaluation, and evaluation never draws."""

import torch

from attncheck.compare import Inapplicable, answered, close, fail, tolerance, unchanged
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.subject import Answer, Case, Subject


@check(
    "modes.train-eval",
    where=lambda case: case.S > 1,
    faults=("dropout.on-in-eval", "dropout.off-after-eval", "modes.scaled-in-training", "dropout.never"),
)
def train_eval(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Training with p = 0 equals evaluation; with p = 0.5 evaluation draws nothing, training does, also after eval."""
    inputs = subject.draw(case)
    evaluated = answered(subject.attempt(inputs, None, case.but(mode="eval")))
    if "train" in subject.modes:
        trained = answered(subject.attempt(inputs, None, case.but(mode="train")))
        close(
            trained,
            evaluated.out,
            tolerance(evaluated),
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
