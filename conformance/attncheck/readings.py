"""Which reading of a target's parameters is right: decided by parity with the reference, never by names alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attncheck.explain import fits
from attncheck.parity import agrees, fitted_scale, plain_calls
from attncheck.subject import Answer, Convention, Subject


@dataclass(frozen=True)
class Reading:
    """A target's parameters under the names of the reference, and the parts that the reference needs for them."""

    weights: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)  # keywords of the reference
    says: Mapping[str, str] = field(default_factory=dict)  # conventions that its parts bring with them
    told: str = ""  # in words, what is not plain


# What a plain call in evaluation, of contiguous float32, cannot show.
UNSEEN = (
    "mask", "dropout", "inputs", "weights", "modes", "half", "gradient", "state", "strides", "shape", "scores",
    "window",
)  # fmt: skip
# (subject, reading, fault or None, **settings) -> the reference on these weights.
Share = Callable[..., Subject | None]


def reading_of(
    subject: Subject,
    readings: list[Reading],
    share: Share,
    faults: Iterable[Any],
    certain: Callable[[], Reading | None],
) -> Reading | None:
    """The reading under which the reference, sound or with one known fault, gives one of the target's plain outputs.

    certain: the reading that names leave no doubt of. Where nothing gives the outputs it is that one, and `assumed`.
    """
    calls = plain_calls(subject)
    readings = [r for r in readings if calls and out_width(r, subject) in (None, calls[0].out.shape[-1])]
    learned = subject.says("scale") == "learned"
    # One call tells nearly always; the others are for a target of which one way of calling is broken.
    for some in (calls[:1], calls[1:]):
        for reading in readings:
            twin = share(subject, reading)
            if any(agrees(twin, [call]) for call in some):
                return reading
    likely = readings[: None if learned else 2]
    for reading in likely if learned else _first_of_each(readings):
        scale = fitted_scale(share(subject, reading, scale=1.0), calls)
        if scale is not None:
            # Declared as learned, it is taken as it is; otherwise it is what numeric.oracle will report.
            subject.twins["scale"] = scale if learned else None
            return reading
    known = list(faults)
    sure = certain()
    suspects = [sure] if sure is not None else likely if learned else _first_of_each(readings, 4)
    found = next((r for r in suspects if _gives_with_fault(subject, r, calls, share, known)), None)
    subject.twins["assumed"] = found is None and sure is not None
    return sure if found is None else found


def _first_of_each(readings: list[Reading], most: int = 10) -> list[Reading]:
    """The likeliest projections with every way to read the parts beside them, those without parts first."""
    firsts = {reading.told: reading for reading in reversed(readings)}
    told = dict.fromkeys(["", *(r.told for r in readings)])
    found = [firsts[t] for t in told if t in firsts]
    return (found if len(found) > 1 else readings[:2])[:most]


def out_width(reading: Reading, subject: Subject) -> int | None:
    """Do of a reading; None for a kernel."""
    weights = reading.weights
    if not weights:
        return None
    if "o.weight" in weights:
        return weights["o.weight"].shape[0]
    d = weights["q.weight"].shape[0] // subject.heads
    return subject.heads * weights["v.weight"].shape[0] // (weights["k.weight"].shape[0] // d)


def _gives_with_fault(subject: Subject, reading: Reading, calls: list[Answer], share: Share, faults: list[Any]) -> bool:
    """Whether one fault on this reading gives all plain outputs, under the observed causality or else the other one."""
    observed = subject.conventions.get("causal")
    others = () if observed is not None and observed.source == "declared" else ("top-left", "no")
    for causal in dict.fromkeys((subject.says("causal") or "no", *others)):
        if observed is None or causal != observed.value:
            subject.conventions["causal"] = Convention(
                causal, "observed", "only so does a known fault give the outputs"
            )
        for fault in faults:
            if may_be_there(fault, subject) and agrees(share(subject, reading, fault), calls):
                return True
    subject.conventions.pop("causal", None)
    if observed is not None:
        subject.conventions["causal"] = observed
    return False


def may_be_there(fault: Any, subject: Subject) -> bool:
    """Whether a fault could show in a plain call, and is not what the target declares of itself."""
    softmax_is_free = subject.says("weight_sum") not in (None, "one")
    return fits(fault, subject) and fault.family not in UNSEEN + (("softmax",) if softmax_is_free else ())
