"""The contract of a call: shapes and types that come out, and nothing that changes on the way.

N batch, T queries, S keys
"""

import contextlib
from collections.abc import Iterator

import torch

from attncheck.allowed import mask_of
from attncheck.compare import Inapplicable, answered, close, fail, finite, tolerance_of, unchanged
from attncheck.inputs import Change
from attncheck.registry import check
from attncheck.sight import Sight
from attncheck.subject import MASK_AXES, Answer, Case, Refusal, Subject


@check(
    "contract.shape",
    axes={"padded": (False, True)},
    faults=(
        "shape.single-query-doubled", "shape.squeezes-batch", "shape.squeezes-time", "shape.other-dtype",
        "shape.cut-to-longest",
    ),
)  # fmt: skip
def shape(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The output has the query's batch, length and dtype, and is finite.

    Why: Code that squeezes an axis of one, or widens the dtype, works until the first batch or sequence of one, or
    until the next layer broadcasts the result into another answer without an error.
    Fix: Index or reshape by named sizes instead of squeeze(), and cast back to the query's dtype before returning.
    Blind: The width of the output, calls under a mask, and every number in it but NaN and infinity.
    """
    inputs, allowed = subject.draw(case), padded_end(subject, case) if case["padded"] else None
    answer = subject.attempt(inputs, allowed, case)
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
    finite(answer, Sight(subject, allowed, case).judged)


def padded_end(subject: Subject, case: Case) -> torch.Tensor | None:
    """A mask under which every sample ends in padding, where the target takes one; no query loses all of its keys."""
    if "N11S" not in subject.masks or case.S < 3 or not bool(subject.pattern(case.T, case.S).all()):
        return None
    return (torch.arange(case.S) < case.S - 1).expand(case.N, 1, 1, case.S).contiguous()


@check(
    "contract.inputs-untouched",
    axes={"mask": ("none", *MASK_AXES)},
    faults=("inputs.query-scaled-in-place", "inputs.mask-inverted-in-place", "inputs.parameter-decays"),
)
def inputs_untouched(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A call leaves its inputs, its mask and the parameters as they were, bit for bit.

    Why: Callers use their tensors again: a mask that is inverted in place, or a query that is scaled in place,
    makes the next layer wrong, and the layer that did it looks right.
    Fix: Replace the in-place operation (masked_fill_, mul_, /=, logical_not_) by the one that makes a new tensor.
    Blind: A change that is undone before the call returns, what is kept outside of state_dict(), and for functions
    what is done to tensors that an adapter makes for them.
    Earns: The other checks see such a change only as a second call that disagrees with the first; this one names
    the argument or the parameter.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
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


@check(
    "contract.strides",
    axes={"mask": ("none", "TS", "N1TS"), "view": ("sliced", "transposed", "offset", "expanded")},
    faults=("strides.query-read-as-contiguous", "strides.mask-read-as-contiguous"),
)
def strides(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Inputs and masks that are views of other memory give the answer of contiguous ones.

    Slices, transposes, views with an offset, and one sample expanded to a batch. The bound is numeric. A refusal is
    loud, and passes over.

    Why: heads arrive as transposed views, and code that reads memory by as_strided or data_ptr takes other numbers.
    Fix: call .contiguous() before anything that reads raw memory, or use reshape and index through strides.
    Blind: devices other than the one it runs on.
    Earns: every other check compares views with the same views.
    """
    plain, allowed, drawn = case.but(strided=False), mask_of(subject, case), subject.draw(case)
    if case["view"] == "expanded":
        drawn = drawn.map(lambda name, x: (x[:1].repeat(case.N, *[1] * (x.ndim - 1)), f"{name}[:1].repeat({case.N}, "
                                           + ", ".join("1" * (x.ndim - 1)) + ")"))  # fmt: skip
    before = answered(subject.attempt(drawn, allowed, plain))
    views = drawn.strided() if case["view"] == "sliced" else drawn.map(VIEWS[case["view"]])
    after = subject.attempt(views, None if allowed is None else allowed.mT.contiguous().mT, plain)
    if isinstance(after, Refusal):
        raise Inapplicable(f"{case['view']} inputs are refused: {after}")
    what = f"{case['view']} inputs against contiguous ones"
    judged = Sight(subject, allowed, case).judged
    close(answered(after), before.out, tolerance_of(before), what, (before, "before"), rows=judged)


VIEWS: dict[str, Change] = {
    "transposed": lambda name, x: (x.mT.contiguous().mT, f"{name}.mT.contiguous().mT"),
    "offset": lambda name, x: (torch.cat((x[:1], x))[1:], f"torch.cat(({name}[:1], {name}))[1:]"),
    "expanded": lambda name, x: (x[:1].expand_as(x), f"{name}[:1].expand_as({name})"),
}


@check(
    "contract.deterministic",
    axes={"mask": ("none", "TS", "N11S")},
    modes=("eval", "eval no-grad"),
    faults=("dropout.on-in-eval", "modes.jitters-in-eval", "modes.draws-in-eval"),
)
def deterministic(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """In evaluation two calls agree bit for bit, and draw no random number.

    With p = 0.5 where the target has a dropout rate.

    Why: an answer that changes from call to call cannot be reproduced, and a draw shifts everybody else's numbers.
    Fix: give functional dropout training=self.training, and draw nothing when not training.
    Blind: generators other than torch's global one on the CPU.
    Earns: no other check looks at the state of the generator.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    judged = Sight(subject, allowed, case).judged
    first = answered(subject.attempt(inputs, allowed, case, seed=1))
    drew = not torch.equal(torch.default_generator.get_state(), torch.Generator().manual_seed(1).get_state())
    second = answered(subject.attempt(inputs, allowed, case, seed=2))
    unchanged(first, second, judged, "two calls in evaluation, under other seeds")
    dropping = subject.with_dropout(0.5)
    if dropping is not None:
        one, two = (answered(dropping.attempt(inputs, allowed, case, seed=seed)) for seed in (1, 2))
        unchanged(one, two, judged, "two calls in evaluation with p = 0.5, under other seeds")
    if drew:
        test = "state = torch.get_rng_state()\ncall(query, key, value, allowed)\n"
        fail("a call in evaluation draws from the global generator", first,
             test=test + "assert torch.equal(state, torch.get_rng_state())")  # fmt: skip
