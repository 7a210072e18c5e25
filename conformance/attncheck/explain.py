"""The likely cause of a finding: the fault whose output equals the target's on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attncheck.compare import Failure
from attncheck.finding import Cause
from attncheck.parity import agrees, battery, fitted_scale, plain_case
from attncheck.subject import Case, Refusal, Subject

# (subject, fault or None, **settings) -> the reference on the subject's weights, with the fault in it.
Build = Callable[..., Subject | None]
# Whether the check finds in this subject what it found in the target.
Fails = Callable[[Subject], bool]
POLICIES = ("zero", "nan", "uniform")


def likely_cause(
    subject: Subject, failure: Failure, case: Case, faults: list[Any], killers: list[Any], build: Build, fails: Fails
) -> Cause:
    """Try each fault on a battery of calls around the failing one; it must agree in all, and the sound one not.

    Where the sound reference agrees too, the fault shows in something else than these outputs: then the check's own
    killers are tried, and the first is named that breaks the same call or fails the check in the same way.
    """
    sound = build(subject, None)
    if sound is None:
        return Cause()
    calls = battery(subject, failure, case)
    possible = [fault for fault in faults if fits(fault, subject)]
    if not agrees(sound, calls):
        return same_outputs(subject, possible, build, calls)
    for fault in [fault for fault in killers if fits(fault, subject)]:
        twin = build(subject, fault)
        if twin is not None and (breaks_alike(twin, sound, failure) or fails(twin)):
            return Cause(fault.id, f"{fault.summary} ({fault.id}): the check fails in the same way with it")
    return Cause(text="no single known fault explains it")


def same_outputs(subject: Subject, faults: Iterable[Any], build: Build, calls: list[Any]) -> Cause:
    for fault in faults:
        for policy in POLICIES:
            if agrees(build(subject, fault, dead_rows=policy), calls):
                return Cause(fault.id, f"{fault.summary} ({fault.id}): gives the same outputs on the same weights")
    scale = fitted_scale(build(subject, scale=1.0), calls)
    if scale is None:
        return Cause(text="no single known fault explains it")
    usual = width_of(subject) ** -0.5
    meant = f"if it is meant, declare scale={scale:.4g}"
    return Cause(text=f"the scores are scaled by {scale:.4g}, where 1/sqrt(d) is {usual:.4g}; {meant}")


def breaks_alike(twin: Subject, sound: Subject, failure: Failure) -> bool:
    """In another dtype: whether the same call is refused, or not finite in the same places, unlike the sound one."""
    broken = failure.before
    if broken is None or broken.subject.dtype == twin.dtype:
        return False
    given, right = (
        s.at(broken.subject.dtype).attempt(broken.inputs, broken.allowed, plain_case(broken.case, broken.subject))
        for s in (twin, sound)
    )
    if isinstance(broken, Refusal) or isinstance(given, Refusal):
        return isinstance(broken, Refusal) and isinstance(given, Refusal) and not isinstance(right, Refusal)
    bad = ~broken.out.isfinite()
    return bool(bad.any()) and bool((bad == ~given.out.isfinite()).all())


def fits(fault: Any, subject: Subject) -> bool:
    """Whether the fault can be there: its kind, a triangle of the target's own, the path that it shows on."""
    causal = subject.causality != "no" or not fault.init.get("causal")
    additive = subject.says("mask") == "additive" or "additive" in subject.options.get("mask", ())
    paths = {"": True, "weights": "weights" in subject.options, "additive": additive}
    return subject.kind in fault.kinds and causal and paths[fault.path]


def width_of(subject: Subject) -> int:
    """d, the head width of queries and keys."""
    weights = subject.twins.get("weights") or {}
    return int(weights["q.weight"].shape[0]) // subject.heads if weights else subject.widths[0]
