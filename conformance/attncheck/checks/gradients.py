"""Gradients, and graphs that a compiler takes. N batch, T queries, S keys"""

import torch
from torch import Tensor

from attncheck.allowed import mask_of
from attncheck.compare import Inapplicable, answered, fail, premise, tolerance
from attncheck.graphs import exported_program, unheard
from attncheck.registry import check
from attncheck.subject import WITH_GRAD, Answer, Case, Refusal, Subject

Place = tuple[Tensor, Tensor | None]  # an input or parameter, and its gradient


@check(
    "numeric.gradients",
    strength=1,
    axes={"mask": ("none", "TS", "N1TS"), "dropout": (0.0, 0.3)},
    where=lambda case: 1 < case.S < 9,
    modes=WITH_GRAD,
    faults=(
        "gradient.keys-detached", "gradient.values-detached", "gradient.softmax-halved",
        "gradient.output-bias-detached", "causal.leaks-in-gradient", "dropout.gradient-by-p",
    ),
)  # fmt: skip
def gradients(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The gradient of each input and of each parameter is the slope of the output, and finite.

    In float64, along one random direction for each, against central differences at two steps. Bound: 1e-5 of
    the slope's size, and 8 x what the two steps disagree by.

    Why: a path that is detached, or a backward pass written by hand, trains something else than the forward
    pass computes.
    Fix: remove .detach() and .data from the forward pass, and test a backward of your own by
    torch.autograd.gradcheck.
    Blind: targets that refuse float64, and points where the output has a kink, as behind a relu.
    Earns: forward passes say nothing about gradients.
    """
    dropping = subject.with_dropout(case["dropout"]) if case["dropout"] and case.mode == "train" else None
    # Under one seed every call draws the same, so that slopes under dropout can be measured too.
    twin = (dropping or subject).at(torch.float64)
    inputs = twin.draw(case).fresh()
    allowed = mask_of(subject, case)
    answer = twin.attempt(inputs, allowed, case)
    if isinstance(answer, Refusal):
        raise Inapplicable(f"float64 is refused: {answer}")
    answered(answer)
    if answer.out.dtype != torch.float64 or not answer.output.requires_grad:
        raise Inapplicable("the output is not float64, or carries no gradient")
    direction = torch.randn(answer.out.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    learning = [] if twin.module is None else [p for p in twin.module.named_parameters() if p[1].requires_grad]
    places = [*answer.inputs.distinct(), *learning]
    total = (answer.output * direction.to(answer.output)).sum()
    grads = torch.autograd.grad(total, [x for _, x in places], allow_unused=True)
    told = [None if g is None else g.detach() for g in grads]
    together: list[Place] = [(x, g) for (_, x), g in zip(places, told, strict=True)]
    if _wrong(answer, direction, together) is None:
        return
    for (name, x), grad in zip(places, told, strict=True):
        slopes = _wrong(answer, direction, [(x, grad)])
        if slopes is not None:
            where = name if name in ("query", "key", "value") else f"dict(target.named_parameters())[{name!r}]"
            rises = f"along a random direction of {name} the output rises by {slopes[0]:.4g}"
            test = _TEST.format(where=where, direction=direction.tolist(), slope=slopes[0])
            fail(f"{rises}, its gradient says {slopes[1]:.4g}", answer, test=test)


def _wrong(answer: Answer, direction: Tensor, places: list[Place]) -> tuple[float, float] | None:
    """The slope of the output with all places moved, and what their gradients say; None where these agree."""
    steps = [(x, torch.randn(x.shape, generator=torch.Generator().manual_seed(6)).to(x)) for x, _ in places]
    slopes, bends = [], torch.zeros(())
    for size in (1e-4, 2e-4):
        ahead, behind = (_moved(answer, [(x, step * size * sign) for x, step in steps]) for sign in (1, -1))
        if ahead is None or behind is None:
            return None
        slopes.append((ahead - behind) * direction / (2 * size))
        bends = bends if slopes[1:] else (ahead + behind - 2 * answer.out.detach()) * direction / size
    slope = float(slopes[0].sum())
    told = sum(0.0 if g is None else float((g * step).sum()) for (_, g), (_, step) in zip(places, steps, strict=True))
    # What two steps disagree by is rounding inside the target, as of a softmax in float32.
    bound = 1e-5 * float(slopes[0].abs().sum()) + 8 * float((slopes[0] - slopes[1]).abs().sum()) + 1e-7
    # Where the slopes ahead and behind differ by more than a curve's, there is a kink between them.
    bends = bends.abs()
    bound += float(bends[bends > 1e-2 * slopes[0].abs().mean()].sum())
    return None if abs(slope - told) <= bound else (slope, told)


_TEST = """\
total = (before * torch.tensor({direction}, dtype=before.dtype)).sum()
place = {where}
(grad,) = torch.autograd.grad(total, place, allow_unused=True, materialize_grads=True)
step = torch.randn(place.shape, generator=torch.Generator().manual_seed(6)).to(place)
assert abs((grad * step).sum().item() - {slope!r}) <= 1e-4 * abs({slope!r}) + 1e-6"""


def _moved(answer: Answer, steps: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    """The output with inputs or parameters moved, in place and back."""
    kept = [x.detach().clone() for x, _ in steps]
    with torch.no_grad():
        for x, step in steps:
            x.add_(step)
    after = answer.subject.attempt(answer.inputs, answer.allowed, answer.case.but(strided=False))
    with torch.no_grad():
        for (x, _), was in zip(steps, kept, strict=True):
            x.copy_(was)
    return after.out if isinstance(after, Answer) else None


@check(
    "numeric.compile",
    needs=("module",),
    strength=1,
    profile="deep",
    sizes=1,
    axes={"mask": ("none", "TS", "N1TS")},
    where=lambda case: 1 < case.S < 12,
    faults=("mask.dropped-when-compiled",),
)
def compiled(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Under torch.compile the output is that of eager code.

    Traced by Dynamo and AOT autograd, without the code generator. What Dynamo cannot trace is inapplicable.

    Why: branches on torch.compiler, on shapes or on Python state are decided once, when the graph is made.
    Fix: let values decide, by torch.where, and let no branch depend on being compiled.
    Blind: the code generator of a backend.
    Earns: eager code never takes these branches.
    """
    twin = subject.copied()
    assert twin.module is not None
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    torch.compiler.reset()
    twin.module.compile(backend="aot_eager")
    with unheard():
        after = twin.attempt(inputs, allowed, case)
    if isinstance(after, Refusal):
        raise Inapplicable(f"torch.compile: {after}")
    test = (
        "target.compile(backend='aot_eager')\nafter, _ = call(query, key, value, allowed)\n"
        f"assert torch.allclose(after, before, rtol=0, atol={tolerance(before)!r}, equal_nan=True)"
    )
    _near(after, before, "compiled against eager", test)


@check(
    "numeric.export",
    needs=("module",),
    strength=1,
    profile="deep",
    sizes=1,
    axes={"mask": ("none", "TS", "N1TS")},
    where=lambda case: 2 < case.S < 12,
    modes=("eval no-grad",),
    faults=("mask.dropped-when-exported",),
)
def exported(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A graph that torch.export makes at one length gives the output of eager code at another.

    What cannot be exported is inapplicable, with the exporter's reason.

    Why: a length that is read as a Python number is baked into the graph, and every other length is wrong.
    Fix: take lengths from .shape where they are used, and make masks from them, not from a number kept before.
    Blind: axes that the exporter refuses to leave open.
    Earns: eager code has no graph that could be baked.
    """
    case = case.but(strided=False)
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    answered(subject.attempt(inputs, allowed, case))
    program = exported_program(subject, inputs, allowed, case)
    longer = case.but(T=case.T + 3, S=case.S + 3)
    others, mask = subject.draw(longer), mask_of(subject, longer)
    before = answered(subject.attempt(others, mask, longer))
    got = program.run(others, mask, longer)
    premise(got is not None, "the exported graph gives no tensor of the output's shape")
    assert got is not None
    after = Answer(got, None, others, mask, longer, subject)
    options = "".join(f", {k}={v!r}" for k, v in case.options.items())
    test = _EXPORT.format(bound=tolerance(before), options=options)
    _near(after, before, f"exported at {case.T} queries and run at {longer.T}, against eager", test)


_EXPORT = """\
from torch.utils._pytree import tree_leaves, tree_map
seen = []
def handed(*inputs):
    hook = target.register_forward_pre_hook(lambda module, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    call(*inputs{options})
    hook.remove()
    return seen.pop()
mask = None if allowed is None else allowed[..., :-3, :-3].clone()
args, kwargs = handed(*(x[..., :-3, :].clone() for x in (query, key, value)), mask)
axes = lambda x: dict.fromkeys(range(x.ndim), torch.export.Dim.AUTO) if isinstance(x, torch.Tensor) else None
shapes = tree_map(axes, (*args, *kwargs.values()))
program = torch.export.export(target, args, kwargs, dynamic_shapes=shapes).module()
args, kwargs = handed(query, key, value, allowed)
tensors = [x for x in tree_leaves(program(*args, **kwargs)) if isinstance(x, torch.Tensor)]
after = next(x for x in tensors if x.numel() == before.numel())
after = after if after.shape == before.shape else after.transpose(0, 1)
assert torch.allclose(after, before, rtol=0, atol={bound!r}, equal_nan=True)"""


def _near(after: Answer, before: Answer, what: str, test: str) -> None:
    close_enough = (after.out - before.out).abs() <= tolerance(before)
    finite = before.out.isfinite()
    if not bool(close_enough[finite].all()):
        worst = float((after.out - before.out).abs()[finite].nan_to_num(torch.inf).max())
        fail(f"{what}: the output differs by {worst:.2g}", before, test=test)
