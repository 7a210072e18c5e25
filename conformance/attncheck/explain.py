"""The likely cause of a finding: the fault whose output equals the target's on the same weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from attncheck.compare import Failure
from attncheck.finding import Cause
from attncheck.parity import agrees, battery, fitted_scale, plain_case
from attncheck.subject import Case, Refusal, Subject

# (subject, fault or None, **settings) -> the reference on the subject's weights, with the fault in it.
Build = Callable[..., Subject | None]
# What the check says of a subject in the same case; None where it finds nothing.
Finds = Callable[[Subject, Subject], str | None]
POLICIES = ("zero", "nan", "uniform")


def likely_cause(
    subject: Subject, failure: Failure, case: Case, faults: list[Any], killers: list[Any], build: Build, finds: Finds
) -> Cause:
    """Try each fault on a battery of calls around the failing one; it must agree in all, and the sound one not.

    Where the sound reference agrees too, or the order of calls matters, the fault shows in something else than these
    outputs: then it is the check's own killer of which the check says the same.
    """
    sound = build(subject, None)
    if sound is None:
        return Cause()
    refused = isinstance(failure.before, Refusal)
    # A call that raised has no outputs to compare, and the others need not show why it did.
    calls = [] if refused else battery(subject, failure, case)
    shows = refused or not agrees(sound, calls)
    cause = Cause(text=f"{UNKNOWN}; {OTHER_DESIGN}" if subject.twins.get("assumed") else UNKNOWN)
    if shows and not refused:
        cause = same_outputs(subject, [f for f in faults if fits(f, subject)], build, calls)
        if cause.fault:
            return cause
    twins = {f: twin for f in killers if fits(f, subject) and (twin := build(subject, f))}
    if shows and not refused:
        # Not in float64, but perhaps in the target's own dtype, where numbers overflow or underflow.
        same = next((f for f, twin in twins.items() if agrees(twin.at(subject.dtype), calls)), None)
        if same is not None:
            return _named(same, "gives the same outputs on the same weights")
        # What a module remembers, or does to its inputs, shows in the order of calls, which the battery does not keep.
        twins = {f: twin for f, twin in twins.items() if f.family in ("state", "inputs", "strides")}
    return _found_alike(twins, sound, failure, finds) or cause


OTHER_DESIGN = (
    "its parameters have the names and shapes of plain attention; if it is another design, declare design=other"
)
UNKNOWN = "no single known fault explains it"


def _named(fault: Any, how: str) -> Cause:
    return Cause(fault.id, f"{fault.summary} ({fault.id}): {how}")


def _found_alike(twins: dict[Any, Subject], sound: Subject, failure: Failure, finds: Finds) -> Cause | None:
    """The fault of which the check says the same, number for number, or that breaks the same call in the same way.

    Those of which it says so in words alone are told, and none is named.
    """
    said = {fault: finds(twin, sound) for fault, twin in twins.items()}
    exact = [fault for fault, text in said.items() if text == failure.evidence]
    exact += [fault for fault, twin in twins.items() if not exact and breaks_alike(twin, sound, failure)]
    if exact:
        return _named(exact[0], "the check fails in the same way with it")
    words = [fault.id for fault, text in said.items() if kind_of(text) == kind_of(failure.evidence) is not None]
    return Cause(text=f"{UNKNOWN}; the check fails in like words with {', '.join(words)}") if words else None


def kind_of(evidence: str | None) -> str | None:
    """The words of a finding without its numbers."""
    return None if evidence is None else re.sub(r"[-+.\d]+(e[-+]?\d+)?|\[.*?\]|\(.*?\)", "", evidence)


def same_outputs(subject: Subject, faults: Iterable[Any], build: Build, calls: list[Any]) -> Cause:
    for fault in faults:
        for policy in POLICIES:
            if agrees(build(subject, fault, dead_rows=policy), calls):
                return _named(fault, "gives the same outputs on the same weights")
    scale = fitted_scale(build(subject, scale=1.0), calls)
    if scale is None:
        return Cause(text=UNKNOWN)
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
    reading = subject.twins.get("reading")
    weights = reading.weights if reading is not None else {}
    return int(weights["q.weight"].shape[0]) // subject.heads if weights else subject.widths[0]
