"""What must be refused, by any exception, and never answered. N batch, T queries, S keys, h heads"""

from collections.abc import Callable

import torch
from torch import Tensor

from attncheck.compare import REFUSAL, Inapplicable, answered, fail
from attncheck.inputs import Inputs
from attncheck.registry import check
from attncheck.subject import Answer, Case, Refusal, Subject

Wrong = Callable[[Inputs, Case], tuple[Inputs, Tensor | None]]


def everything_true(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


# Mistakes that no legal call contains, with what is handed in for them.
WRONG: dict[str, Wrong] = {
    "a query with a feature too many": lambda x, case: (x.widened("query", -1), None),
    "a memory with a feature too many": lambda x, case: (x.widened("key value", -1), None),
    "a memory with a sample too many": lambda x, case: (x.widened("key value", 0), None),
    "a mask with a key less than there are": lambda x, case: (x, everything_true(case.T, case.S - 1)),
}
NEEDS_MEMORY = ("a memory with a feature too many", "a memory with a sample too many")


def asked(wrong: str, subject: Subject, case: Case) -> None:
    """Inapplicable where the mistake cannot be made, or is none."""
    if wrong in NEEDS_MEMORY and case.tied:
        raise Inapplicable(f"{wrong}: the target takes no memory of its own here")
    if "sample" in wrong and (case.N + 1) * case.S % case.N == 0:
        raise Inapplicable("the samples of the memory fit the batch by accident, as view(N, -1, h, d) takes them")
    if subject.kind == "kernel" and case.tied:
        raise Inapplicable("a kernel takes any width that its queries and keys share")
    if "mask" in wrong and "TS" not in subject.masks:
        raise Inapplicable("takes no (T,S) mask")


@check(
    "contract.rejects",
    axes={"wrong": tuple(WRONG)},
    where=lambda case: case.S > 2 and case.N > 1,
    severity="medium",
    faults=("shape.extra-features-cut", "batch.memory-cut", "mask.short-padded"),
)
def rejects(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Inputs and masks whose sizes do not fit are refused, and never answered.

    Any exception is a refusal.

    Why: an answer to a call that makes no sense hides the mistake in the caller's code, often for good.
    Fix: compare the sizes at the start of forward and raise a ValueError that shows both.
    Blind: sizes that fit by accident, as a (N,S) mask where N = T.
    Earns: a refusal is no number, so that no other check looks at it.
    """
    wrong = case["wrong"]
    asked(wrong, subject, case)
    inputs, allowed = WRONG[wrong](subject.draw(case), case)
    answer = subject.attempt(inputs, allowed, case.but(strided=False))
    if isinstance(answer, Refusal):
        if answer.unsupported:
            raise Inapplicable(str(answer.error))
        return
    fail(f"{wrong} was taken, and the output has shape {tuple(answer.out.shape)}", answer, test=REFUSAL)


@check(
    "contract.heads-divide",
    kinds=("attention",),
    strength=1,
    where=lambda case: (case.N, case.T) != (1, 1),
    severity="medium",
    faults=("heads.width-truncated",),
)
def heads_divide(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A width that the heads do not divide is refused, when the target is built or first called.

    An output of the right width passes too: then the width of a head is the target's own choice.

    Why: integer division drops the features that are left over, and the model is narrower than its author thinks.
    Fix: raise a ValueError in the constructor unless width % heads == 0.
    Blind: a constructor that infers no width and heads from its arguments, or that is given as an instance.
    Earns: it is the only check that builds the target with other sizes.
    """
    made = subject.undivided()
    if made is None:
        raise Inapplicable("width and heads of the target are not ours to choose")
    if not isinstance(made, Subject):
        return
    answer = made.attempt(made.draw(case), None, case.but(strided=False))
    if not isinstance(answer, Answer):
        return
    width = answer.inputs.query.shape[-1]
    if answer.out.shape[-1] != width:
        fail(
            f"width {width} with {made.heads} heads gives an output of width {answer.out.shape[-1]}",
            answered(answer),
            test=f"assert before.shape[-1] == {width}, before.shape",
        )
