"""Parity of a target with a reference on the same weights: the calls that prove it, and their comparison.

N batch, T queries, S keys
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from attncheck.allowed import can_keep_a_key, random_mask, triangle
from attncheck.cases import reseeded
from attncheck.compare import Failure
from attncheck.sight import padded_queries
from attncheck.subject import Answer, Case, Refusal, Subject


def plain_calls(subject: Subject) -> list[Answer]:
    """Unmasked calls in evaluation, each of which proves a reading of the weights: no two readings agree by chance."""
    options = {k: v[0] for k, v in subject.options.items()}
    answers = []
    for sources in reversed([s for s in subject.sources if s != "clones"]):
        for N, T, S in ((3, 5, 3), (2, 4, 6), (2, 2, 2))[: 3 if sources == subject.sources[-1] else 1]:
            case = reseeded(Case(sources, N, T, T if sources == "self" else S, "eval no-grad", options=options), 0)
            answers.append(subject.attempt(subject.draw(case), None, case))
    return [a for a in answers if isinstance(a, Answer)]


def battery(subject: Subject, failure: Failure, case: Case) -> list[Answer]:
    """The finding's own calls, and the same without a mask, with a causal and with a random one, at two sizes."""
    calls = [a for a in (failure.before, failure.after) if isinstance(a, Answer)]
    # A finding in another dtype, or with dropout on, is compared on the target as it is.
    calls = [a for a in calls if a.subject.dtype == subject.dtype and a.subject.adapter is subject.adapter]
    calls = [a for a in calls if a.out.shape[:-1] == a.inputs.query.shape[:-1]]
    across = not case.tied
    for N, T, S in ((1, 4, 5), (2, 5, 3), (2, 4, 4)):
        situation = replace(case, N=N, T=T, S=S if across else T, strided=False)
        calls += _masked_calls(subject, reseeded(situation.but(seed=0), 0))
    for other in _other_settings(subject, case):
        if isinstance(failure.before, Answer):
            again = subject.attempt(failure.before.inputs, failure.before.allowed, other)
            calls += [again] if isinstance(again, Answer) else []
        calls += _masked_calls(subject, reseeded(other.but(N=2, T=4, S=5 if across else 4, strided=False, seed=0), 0))[
            :2
        ]
    return calls


def _other_settings(subject: Subject, case: Case) -> list[Case]:
    """Every other mode, and every other value of an option: a fault of one path must not be taken for one of all."""
    modes = [case.but(mode=mode) for mode in subject.modes if mode != case.mode]
    options = [(k, v) for k, values in subject.options.items() for v in values if v != case.options.get(k)]
    return modes + [case.but(options={**case.options, k: v}) for k, v in options]


def _masked_calls(subject: Subject, case: Case) -> list[Answer]:
    masks: list[torch.Tensor | None] = [None]
    masks += [triangle(case)] if "TS" in subject.masks else []
    for axes in ("N11S", "N1TS", "1hTS"):
        if axes in subject.masks and can_keep_a_key(axes, subject, case):
            masks.append(random_mask(axes, subject, case))
    answers = [subject.attempt(subject.draw(case), mask, case) for mask in masks]
    return [a for a in answers if isinstance(a, Answer)]


def agrees(twin: Subject | None, calls: list[Answer]) -> bool:
    """Whether the twin gives every call's output, in the call's own mode, within ordinary rounding."""
    if twin is None or not calls:
        return False
    return all(_gives(twin, call) for call in calls)


def _gives(twin: Subject, call: Answer) -> bool:
    if not bool(call.out.isfinite().all()):
        twin = twin.at(call.subject.dtype)  # where numbers overflow is a matter of the dtype
    # Copies, since the fault on trial may write into what it is given.
    inputs, allowed = call.inputs.copied().to(twin.dtype), call.allowed
    allowed = None if allowed is None else allowed.clone()
    given = twin.attempt(inputs, allowed, plain_case(call.case, call.subject))
    if isinstance(given, Refusal) or given.out.shape != call.out.shape:
        return False
    spared = spared_queries(call)
    call, given = (answer.masked_rows(spared) for answer in (call, given))
    weights = (call.weights, given.weights)
    if weights[0] is not None and weights[1] is not None and weights[0].shape == weights[1].shape:
        return _near(call.out, given.out) and _near(weights[0].detach().cpu(), weights[1].detach())
    return _near(call.out, given.out)


def spared_queries(call: Answer) -> Tensor | None:
    """Padded queries (N,T), which a target may set to zero; not those of a sample without any token."""
    padded_NT = padded_queries(call.allowed, call.case)
    return None if padded_NT is None else padded_NT & ~padded_NT.all(-1, keepdim=True)


def _near(got: Tensor, want: Tensor) -> bool:
    """Within ordinary rounding of float32, far below what any fault does."""
    bound = 1e-4 * float(want.abs().nan_to_num(0.0, 0.0).max()) + 1e-7
    return torch.allclose(got.double(), want.double(), rtol=0, atol=bound, equal_nan=True)


def fitted_scale(twin: Subject | None, calls: list[Answer]) -> float | None:
    """The factor of the scores under which the reference gives the target's outputs; None where none does."""
    if twin is None or not calls:
        return None
    want, module = calls[0], twin.adapter.module
    inputs, case = want.inputs.to(torch.float64), plain_case(want.case, want.subject)

    def error(log_scale: float) -> float:
        module.factor = math.exp(log_scale)
        given = twin.attempt(inputs, want.allowed, case)
        if not isinstance(given, Answer) or given.out.shape != want.out.shape:
            return math.inf
        return float((given.out - want.out.double()).norm().nan_to_num(torch.inf))

    middle = min((-6 + 0.25 * i for i in range(40)), key=error)
    if error(middle) == math.inf:
        return None
    low, high = middle - 0.25, middle + 0.25
    for _ in range(70):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if error(a) < error(b) else (a, high)
    module.factor = math.exp((low + high) / 2)
    return module.factor if agrees(twin, calls) else None


def plain_case(case: Case, subject: Subject | None = None) -> Case:
    """The case as it is put to the reference: the same mode, and the options that faults of one path show on."""
    additive = subject is not None and subject.says("mask") == "additive" and "mask" not in case.options
    mask = "additive" if additive or case.options.get("mask") == "additive" else "bool"
    return case.but(strided=False, options={"weights": bool(case.options.get("weights", True)), "mask": mask})
