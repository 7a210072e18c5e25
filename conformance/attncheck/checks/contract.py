"""The contract of a call: shapes and types that come out, and nothing that changes on the way.

N batch, T queries, S keys
"""

import contextlib
from collections.abc import Iterator

import torch

from attncheck.allowed import random_mask
from attncheck.compare import answered, fail, finite
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Subject


@check(
    "contract.shape",
    faults=("shape.single-query-doubled", "shape.squeezes-batch", "shape.squeezes-time", "shape.other-dtype"),
)
def shape(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output has the query's batch, length and dtype, and is finite."""
    inputs = subject.draw(case)
    answer = subject.attempt(inputs, None, case)
    answer = answer if isinstance(answer, Answer) else answered(answer)
    axes = inputs.query.shape[:-1]
    if answer.out.shape[:-1] != axes:
        fail(
            f"the output has shape {tuple(answer.out.shape)} for a query of shape {tuple(inputs.query.shape)}",
            answer,
            test=f"assert before.shape[:-1] == {tuple(axes)}, before.shape",
        )
    if answer.out.dtype != subject.dtype:
        fail(f"the output is {answer.out.dtype} for inputs of {subject.dtype}", answer,
             test=f"assert before.dtype == {subject.dtype}, before.dtype")  # fmt: skip
    finite(answer, Sight(subject, None, case).judged)


@check(
    "contract.inputs-untouched",
    axes={"mask": ("none", *MASK_AXES)},
    faults=("inputs.query-scaled-in-place", "inputs.mask-inverted-in-place", "inputs.parameter-decays"),
)
def inputs_untouched(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A call leaves its inputs, its mask and the parameters as they were, bit for bit."""
    allowed = None if case["mask"] == "none" else random_mask(case["mask"], subject, case)
    inputs = subject.draw(case)
    kept = {} if subject.module is None else {k: v.clone() for k, v in subject.module.state_dict().items()}
    mine = [x.clone() for x in inputs.tensors()]
    theirs = None if allowed is None else allowed.clone()
    with watched(subject) as given:
        answer = answered(subject.attempt(inputs, theirs, case.but(strided=False)))
    now = {} if subject.module is None else dict(subject.module.state_dict())
    changes = [
        (name, x, was) for name, x, was in zip(("query", "key", "value"), answer.inputs.tensors(), mine, strict=True)
    ]
    changes += [] if theirs is None or allowed is None else [("allowed", theirs, allowed)]
    for name, x, was in changes:
        if not torch.equal(x, was):
            test = f"was = {name}.clone()\ncall(query, key, value, allowed)\nassert torch.equal({name}, was)"
            fail(f"the call changed its argument {name}", answer, test=test)
    for name, x, was in given:
        if not torch.equal(x, was):
            fail(f"the target changed its argument {name} in place", answer, test=WATCH)
    for name, was in kept.items():
        if not torch.equal(now[name], was) and not name.endswith("num_batches_tracked"):
            fail(f"the call changed {name} of the target's state", answer,
                 test=f"was = target.state_dict()[{name!r}].clone()\ncall(query, key, value, allowed)\n"
                      f"assert torch.equal(target.state_dict()[{name!r}], was)")  # fmt: skip


WATCH = """\
seen = []
def remember(module, args, kwargs):
    seen.extend((x, x.clone()) for x in [*args, *kwargs.values()] if isinstance(x, torch.Tensor))
target.register_forward_pre_hook(remember, with_kwargs=True)
call(query, key, value, allowed)
assert all(torch.equal(x, was) for x, was in seen)"""


@contextlib.contextmanager
def watched(subject: Subject) -> Iterator[list[tuple[str, torch.Tensor, torch.Tensor]]]:
    """What the target itself is handed, with a copy: an adapter may hand it a mask of its own making."""
    given: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def remember(module: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        named = {**{f"number {i}": x for i, x in enumerate(args)}, **kwargs}
        given.extend((n, x, x.detach().clone()) for n, x in named.items() if isinstance(x, torch.Tensor))

    if subject.module is None:
        yield given
        return
    hook = subject.module.register_forward_pre_hook(remember, with_kwargs=True)
    try:
        yield given
    finally:
        hook.remove()
