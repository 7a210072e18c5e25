"""The likely cause of a finding: the fault whose output equals the target's on the same weights.

N batch, T queries, S keys
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from attncheck.allowed import random_mask, triangle
from attncheck.cases import reseeded
from attncheck.compare import Failure, Inapplicable, Vacuous
from attncheck.finding import Cause
from attncheck.subject import Answer, Case, Refusal, Subject

# Builds the reference on a subject's weights with a fault in it, or sound where None.
Build = Callable[..., Subject | None]
POLICIES = ("zero", "nan", "uniform")


def likely_cause(subject: Subject, failure: Failure, case: Case, faults: Iterable[Any], build: Build) -> Cause:
    """Try each fault on a battery of calls around the failing one; it must agree in all, and the sound one not."""
    if build(subject, None) is None:
        return Cause()
    if failure.before is not None and failure.before.subject.dtype != subject.dtype:
        return cause_in_dtype(subject, failure, faults, build)
    calls = battery(subject, failure, case)
    if not calls:
        return Cause(text="no call of the finding could be compared with the reference")
    if agrees(build(subject, None), calls):
        return Cause(text="none found: wherever outputs could be compared, the sound reference gives the same")
    for fault in faults:
        if not fits(fault, subject):
            continue
        for policy in POLICIES:
            twin = build(subject, fault, dead_rows=policy)
            if twin is not None and agrees(twin, calls):
                return Cause(fault.id, f"{fault.summary} ({fault.id}): gives the same outputs on the same weights")
    scale = fitted_scale(subject, lambda scale: build(subject, scale=scale), calls)
    if scale is not None:
        usual = width_of(subject) ** -0.5
        meant = f"if it is meant, declare scale={scale:.4g}"
        return Cause(text=f"the scores are scaled by {scale:.4g}, where 1/sqrt(d) is {usual:.4g}; {meant}")
    return Cause(text="no single known fault explains it")


def width_of(subject: Subject) -> int:
    """d, the head width of queries and keys."""
    weights = subject.twins.get("weights") or {}
    return int(weights["q.weight"].shape[0]) // subject.heads if weights else subject.widths[0]


def plain_calls(subject: Subject) -> list[Answer]:
    """Unmasked calls in evaluation, each of which proves a reading of the weights: no two readings agree by chance."""
    across = [s for s in subject.sources if s in ("memory", "separate")]
    sources = across[-1] if across else subject.sources[0]
    options = {k: v[0] for k, v in subject.options.items()}
    answers = []
    for N, T, S in ((3, 5, 3), (2, 4, 6), (2, 2, 2)):
        case = reseeded(Case(sources, N, T, S if across else T, "eval no-grad", options=options), 0)
        answers.append(subject.attempt(subject.draw(case), None, case))
    return [a for a in answers if isinstance(a, Answer)]


def fitted_scale(subject: Subject, build: Callable[[float], Subject | None], calls: list[Answer]) -> float | None:
    """The factor of the scores under which the reference gives the target's outputs; None where none does."""
    if not calls:
        return None
    want = calls[0]

    def error(log_scale: float) -> float:
        twin = build(math.exp(log_scale))
        given = None if twin is None else twin.attempt(want.inputs.to(torch.float64), want.allowed, plain_case(want))
        if not isinstance(given, Answer) or given.out.shape != want.out.shape:
            return math.inf
        return float((given.out - want.out.double()).norm().nan_to_num(torch.inf))

    grid = [-6 + 0.25 * i for i in range(40)]
    middle = min(grid, key=error)
    if error(middle) == math.inf:
        return None
    low, high = middle - 0.25, middle + 0.25
    for _ in range(40):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if error(a) < error(b) else (a, high)
    scale = math.exp((low + high) / 2)
    return scale if agrees(build(scale), calls) else None


def plain_case(call: Answer | Refusal) -> Case:
    return call.case.but(strided=False, options=options_for(call))


def cause_in_dtype(subject: Subject, failure: Failure, faults: Iterable[Any], build: Build) -> Cause:
    """In half precision: the fault that breaks the same call in the same way, where the sound one does not."""
    broken = failure.before
    assert broken is not None

    def breaks(twin: Subject | None) -> bool:
        if twin is None:
            return False
        given = twin.at(broken.subject.dtype).attempt(broken.inputs, broken.allowed, plain_case(broken))
        if isinstance(broken, Refusal) or isinstance(given, Refusal):
            return isinstance(broken, Refusal) and isinstance(given, Refusal)
        bad, good = ~broken.out.isfinite(), ~given.out.isfinite()
        return bool(bad.any()) and bool((bad == good).all())

    if not breaks(build(subject, None)):
        for fault in faults:
            if fits(fault, subject) and breaks(build(subject, fault)):
                return Cause(
                    fault.id, f"{fault.summary} ({fault.id}): it breaks the same call in {broken.subject.dtype}"
                )
    return likely_cause(subject, Failure(failure.evidence, None), broken.case, faults, build)


def fits(fault: Any, subject: Subject) -> bool:
    """Whether the fault can be there: its kind, a triangle of the target's own, the path that it shows on."""
    causal = subject.causality != "no" or not fault.init.get("causal")
    paths = {"": True, "weights": "weights" in subject.options, "additive": speaks_additive(subject)}
    return subject.kind in fault.kinds and causal and paths[fault.path]


def speaks_additive(subject: Subject) -> bool:
    return subject.says("mask") == "additive" or "additive" in subject.options.get("mask", ())


def battery(subject: Subject, failure: Failure, case: Case) -> list[Answer]:
    """The finding's own calls, and the same without a mask, with a causal and with a random one, at two sizes."""
    calls = [a for a in (failure.before, failure.after) if isinstance(a, Answer)]
    # A finding in another dtype, or with dropout on, is compared on the target as it is.
    calls = [a for a in calls if a.subject.dtype == subject.dtype and a.subject.adapter is subject.adapter]
    across = case.sources in ("memory", "separate")
    for N, T, S in ((1, 4, 5), (2, 5, 3)):
        situation = replace(case, N=N, T=T, S=S if across else T, strided=False)
        calls += _masked_calls(subject, reseeded(situation.but(seed=0), 0))
    for other in _other_settings(subject, case):
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
    try:
        masks += [triangle(case)] if "TS" in subject.masks else []
        masks += [random_mask(axes, subject, case) for axes in ("N11S", "N1TS", "1hTS") if axes in subject.masks]
    except (Vacuous, Inapplicable):
        pass
    answers = [subject.attempt(subject.draw(case), mask, case) for mask in masks]
    return [a for a in answers if isinstance(a, Answer)]


def agrees(twin: Subject | None, calls: list[Answer]) -> bool:
    """Whether the twin gives every call's output, in the call's own mode, within ordinary rounding."""
    if twin is None or not calls:
        return False
    for call in calls:
        if not bool(call.out.isfinite().all()) and not bool(call.out.isnan().any()):
            return False
        given = twin.attempt(call.inputs.to(twin.adapter.dtype), call.allowed, plain_case(call))
        if isinstance(given, Refusal) or given.out.shape != call.out.shape:
            return False
        bound = 1e-4 * float(given.out.abs().nan_to_num(0.0).max()) + 1e-7
        if not torch.allclose(given.out.double(), call.out.double(), rtol=0, atol=bound, equal_nan=True):
            return False
    return True


def options_for(call: Answer | Refusal) -> dict[str, Any]:
    """What the faulty reference is asked, so that faults of one path show on that path."""
    only = call.subject.says("mask") == "additive" and "mask" not in call.case.options
    mask = "additive" if only or call.case.options.get("mask") == "additive" else "bool"
    return {"weights": bool(call.case.options.get("weights", True)), "mask": mask}
