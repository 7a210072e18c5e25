"""What a target keeps: parameters, saved state, and memories of earlier calls. N batch, T queries, S keys"""

import re

import torch
from torch import nn

from attncheck.allowed import mask_of
from attncheck.compare import Inapplicable, answered, close, fail, floor_of, premise, tolerance_of
from attncheck.registry import check
from attncheck.subject import WITH_GRAD, Answer, Case, Refusal, Subject


@check(
    "contract.parameters",
    kinds=("attention",),
    needs=("module",),
    strength=1,
    where=lambda case: case.S > 1,
    modes=WITH_GRAD,
    faults=(
        "projection.no-output", "projection.no-output-bias", "projection.query-from-key",
        "projection.value-from-key", "gradient.output-bias-detached", "projection.extra-key-ignored",
    ),
)  # fmt: skip
def parameters(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """Every parameter receives a gradient and acts on the output.

    Looked for in every way of calling the target, with and without a mask. The bias of the keys acts by
    rounding alone, and passes.

    Why: a parameter that does nothing is a projection that was forgotten or computed and thrown away.
    Fix: use it in forward, or delete it.
    Blind: a part of a fused parameter that does nothing; parameters that only another method uses, or an argument
    whose meaning is not known.
    Earns: it needs no reading of the weights.
    """
    assert subject.module is not None
    still = {name: p for name, p in subject.module.named_parameters() if p.requires_grad}
    premise(bool(still), "the target has no parameter that learns")
    answers = [a for a in _ways_of_calling(subject, case) if isinstance(a, Answer)]
    premise(any(a.output.requires_grad for a in answers), "no output carries a gradient")
    for answer in answers:
        still = _unlearned(answer, still)
    for name, parameter in still.items():
        moved = [_moved(answer, parameter, size) for answer in answers for size in (1.0, 100.0)]
        acts = any(beyond > 1 for beyond in moved)
        # A bias of the keys shifts all scores of a query, and moves its output by rounding alone.
        if acts or not any(moved):
            told = "acts on the output, but receives no gradient" if acts else "does nothing"
            if subject.unread and not acts and not named_as_projection(name):
                raise Inapplicable(f"{name} {told}, but may belong to {', '.join(subject.unread)}, left at the default")
            fail(f"parameter {name} {told}", answers[0], test=_test(name, acts))


def named_as_projection(name: str) -> bool:
    """Whether a parameter is by its name one that every call needs: a map of queries, keys, values or the output."""
    return (
        re.search(r"(^|[._])(w?_?[qkvo]|query|key|value|qkv|out|output)(_|\.|$|proj|bias|weight)", name, re.I)
        is not None
    )


def _ways_of_calling(subject: Subject, case: Case) -> list[Answer | Refusal]:
    calls = []
    for sources in subject.sources:
        other = case.but(sources=sources)
        other = other.but(S=other.T) if other.tied else other
        for axes in ("none", *subject.masks[:1]):
            masked = other.but(axes={"mask": axes})
            calls.append(subject.attempt(subject.draw(other), mask_of(subject, masked), other))
    return calls


def _unlearned(answer: Answer, parameters: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Those that receive no gradient from this answer."""
    if not answer.output.requires_grad or not parameters:
        return parameters
    direction = torch.randn(answer.output.shape, generator=torch.Generator().manual_seed(5)).to(answer.output)
    grads = torch.autograd.grad((answer.output * direction).sum(), list(parameters.values()), allow_unused=True)
    return {name: p for (name, p), g in zip(parameters.items(), grads, strict=True) if g is None or not bool(g.any())}


def _moved(answer: Answer, parameter: nn.Parameter, size: float) -> float:
    """How far another value of the parameter moves the output, in units of what rounding may do."""
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.add_(size * torch.randn(kept.shape, generator=torch.Generator().manual_seed(6)).to(kept))
    after = answer.subject.attempt(answer.inputs, answer.allowed, answer.case)
    with torch.no_grad():
        parameter.copy_(kept)
    if not isinstance(after, Answer) or after.out.shape != answer.out.shape:
        return 0.0
    # A large constant is rounded coarsely.
    return float((after.out - answer.out).abs().nan_to_num(0.0).max()) / (max(size, 8.0) * floor_of(answer, answer.out))


def _test(name: str, acts: bool) -> str:
    found = f"parameter = dict(target.named_parameters())[{name!r}]\n"
    if acts:
        return found + "before.square().sum().backward()\nassert parameter.grad is not None and parameter.grad.any()"
    return (
        f"{found}parameter.data += torch.randn(parameter.shape)\nafter, _ = call(query, key, value, allowed)\n"
        "assert not torch.equal(before, after)"
    )


@check(
    "contract.state",
    needs=("module",),
    strength=1,
    axes={"mask": ("none", "TS", "N11S")},
    where=lambda case: case.T > 1 and case.S > 1,
    faults=("state.copy-forgets-causality", "state.not-saved"),
)
def state(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """A deep copy, and a new instance that loads the state_dict, give the same output.

    Why: what is kept outside of parameters and buffers is lost when a model is saved, copied or moved.
    Fix: register tensors as parameters or buffers, and write no __deepcopy__ or state_dict that leaves something out.
    Blind: pickling of whole modules; a target that is given as an instance cannot be built anew.
    Earns: no other check copies or loads the target.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    before = answered(subject.attempt(inputs, allowed, case))
    copied = answered(subject.copied().attempt(inputs, allowed, case))
    close(copied, before.out, tolerance_of(before), "a deep copy against its original", (before, "before"))
    loaded = subject.reloaded()
    if loaded is None:
        raise Inapplicable("the target is an instance, which cannot be built anew")
    answer = answered(loaded.attempt(inputs, allowed, case))
    close(answer, before.out, tolerance_of(before), "a new instance with the saved state", (before, "before"))


@check(
    "contract.history",
    strength=1,
    axes={"mask": ("none", "TS", "N11S", "N1TS")},
    where=lambda case: case.T > 2 and case.S > 2,
    faults=("causal.mask-of-first-length", "state.mask-remembered", "state.memory-remembered"),
)
def history(subject: Subject, case: Case, oracle: Subject | None) -> None:
    """The same call gives the same answer, whatever was called before.

    The case's call on a new instance, against the same after one other call: of other numbers, shorter, longer,
    of another batch, under another mask. Targets with a cache declare `stateful`, the method that starts a new
    sequence.

    Why: masks and positions that are kept from the first call fit the first call only.
    Fix: key what is cached by all that it depends on (length, batch, device, dtype), or do not cache.
    Blind: histories of other kinds, as a call that raised.
    Earns: every other check calls in an order in which such a fault may not show.
    """
    allowed, inputs = mask_of(subject, case), subject.draw(case)
    want = answered((subject.rebuilt() or subject).attempt(inputs, allowed, case))
    told = f"torch.tensor({want.out.tolist()}, dtype=after.dtype)"
    for other in _other_calls(case):
        used = subject.rebuilt() or subject
        previous = used.attempt(used.draw(other), mask_of(subject, other), other)
        again = answered(used.attempt(inputs, allowed, case))
        if isinstance(previous, Answer):
            what = f"after a call in [{previous.case}], against a new instance"
            close(again, want.out, tolerance_of(want), what, (previous, told))


def _other_calls(case: Case) -> list[Case]:
    """Other numbers, shorter, longer, of another batch, and under another mask."""
    short, long = (2, 2 if case.tied else 3), (case.T + 4, case.S + 4)
    masked = "TS" if case["mask"] == "none" else "none"
    return [
        case.but(seed=case.seed + 1), case.but(N=1, T=short[0], S=short[1]), case.but(T=long[0], S=long[1]),
        case.but(N=case.N + 1), case.but(axes={"mask": masked}),
    ]  # fmt: skip
