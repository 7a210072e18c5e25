"""Queries that may attend to no key. N batch, T queries, S keys"""

import torch

from attncheck.compare import Failure, Inapplicable, answered, fail, premise
from attncheck.deadrows import dead_mask, dead_rows, dead_test, policy_of
from attncheck.registry import check
from attncheck.subject import WITH_GRAD, Answer, Case, Subject


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

    Why: A query without a key is 0/0. Often one path gives NaN and another zero, so that a model that trains well
    gives NaN in evaluation, or the other way round.
    Fix: Choose one policy for every path and declare it, as fully_masked = "zero". For zeros mask the scores by
    masked_fill, and set the weights of dead rows to 0 between softmax and the values; zeroing a NaN output leaves
    NaN in the gradients.
    Blind: Which policy is the better one, gradients, queries that lose their keys in some heads only, and where
    nothing is declared a policy that depends on the shape of the mask.
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
    "mask.dead-row-gradient",
    needs=("mask",),
    where=lambda case: case.N > 1 and case.T > 2 and case.S > 1,
    modes=WITH_GRAD,
    axes={"mask": ("N1TS", "N11S", "NhTS")},
    faults=("mask.dead-rows-cleaned-after",),
)
def dead_row_gradient(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A fully masked row of one sample leaves every gradient of the other samples finite.

    Judged where such a row gives numbers; where it gives NaN, its gradients are NaN as well.

    Why: one empty sample makes the gradient of every parameter NaN, and with it the whole step of training.
    Fix: keep the softmax from ever seeing a row of -inf, by masked_fill of the scores before it; cleaning the output
    of NaN afterwards does not mend the way back.
    Blind: losses that also look at the dead row.
    Earns: no other check looks at gradients under a dead row.
    """
    mask, inputs = dead_mask(case["mask"], subject, case), subject.draw(case).fresh()
    answer = subject.attempt(inputs, mask, case)
    if not isinstance(answer, Answer):
        raise Inapplicable(f"a fully masked row is refused: {answer}")
    answered(answer)
    if not bool(dead_rows(answer).isfinite().all()):
        raise Inapplicable("a fully masked row gives NaN, see mask.fully-masked")
    premise(answer.output.requires_grad, "the output carries no gradient")
    learning = [] if subject.module is None else [p for p in subject.module.named_parameters() if p[1].requires_grad]
    sources = [*answer.inputs.distinct(), *learning]
    grads = torch.autograd.grad(answer.output[1:].sum(), [x for _, x in sources], allow_unused=True)
    for (name, _), grad in zip(sources, grads, strict=True):
        if grad is not None and not bool(grad.isfinite().all()):
            found = f"dict(target.named_parameters())[{name!r}]" if "." in name or name not in GIVEN else name
            test = f"(grad,) = torch.autograd.grad(before[1:].sum(), {found})\nassert grad.isfinite().all()"
            fail(f"the gradient of the samples without a dead row with respect to {name} is not finite", answer,
                 test=test)  # fmt: skip


GIVEN = ("query", "key", "value")
