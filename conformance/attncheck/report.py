"""What a run says, as plain data: `attncheck-report/1`.

Nothing here needs torch, so that a process which only gathers results can write the report.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncheck.engine import Result, Target
    from attncheck.finding import Finding

SCHEMA = "attncheck-report/1"
# In the order in which they are counted.
STATUSES = ("passed", "failed", "error", "xpassed", "xfailed", "inapplicable")
BAD = ("failed", "error", "xpassed")


@dataclass
class CheckReport:
    """One check on one target."""

    check: str
    status: str
    cases: int = 0
    seconds: float = 0.0
    reason: str | None = None
    finding: dict[str, Any] | None = None


@dataclass
class TargetReport:
    """One target: what it became, and a result a check. `checks` counts those that were to run."""

    target: str
    kind: str
    adapter: str | None = None
    error: str | None = None
    conventions: dict[str, dict[str, Any]] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checks: int = 0
    results: list[CheckReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.error is None and not any(r.status in BAD for r in self.results)

    @property
    def applied(self) -> int:
        """Results that say something of the target: inapplicable is never passed."""
        return sum(r.status != "inapplicable" for r in self.results)

    @property
    def counts(self) -> dict[str, int]:
        tally = Counter(r.status for r in self.results)
        return {status: tally[status] for status in STATUSES if tally[status]}

    def to_dict(self) -> dict[str, Any]:
        said = {key: {"value": c["value"], "source": c["source"]} for key, c in self.conventions.items()}
        head = {"target": self.target, "kind": self.kind, "adapter": self.adapter, "error": self.error}
        return {**head, "conventions": said, "results": [asdict(r) for r in self.results]}


@dataclass
class Report:
    """All targets of a run."""

    environment: dict[str, Any]
    targets: list[TargetReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.targets) and all(t.ok for t in self.targets)

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "environment": self.environment, "targets": [t.to_dict() for t in self.targets]}


def environment(profile: str = "default", seed: int = 0, device: str = "cpu") -> dict[str, Any]:
    return {
        "attncheck": _version("attncheck"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device,
        "profile": profile,
        "seed": seed,
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"  # run from a source tree


def target_report(target: Target, checks: int) -> TargetReport:
    """What the engine's target looks like from outside; its results are added as they come."""
    return TargetReport(
        target=target.spec,
        kind=target.kind,
        adapter=target.adapter or None,
        error=target.error,
        conventions={key: asdict(c) for key, c in target.conventions.items()},
        built=[text for text in target.built if text],
        notes=list(target.notes),
        checks=checks,
    )


def check_report(result: Result) -> CheckReport:
    finding = None if result.finding is None else finding_dict(result.finding)
    return CheckReport(result.check, result.status, result.cases, result.seconds, result.reason, finding)


def unfinished(check: str, claim: str, evidence: str, command: str) -> CheckReport:
    """A check that did not come to its end, because its target hung or took the process with it: the target failed."""
    cause = "not looked for: the check did not come to its end"
    head: dict[str, Any] = {"claim": claim, "evidence": evidence, "case": {}, "influence": None}
    return CheckReport(check, "failed", finding={**head, "likely_cause": cause, "fault": None, "reproduce": command})


def finding_dict(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "case": {key: _plain(value) for key, value in finding.case.items()}}


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_data(data: Mapping[str, Any]) -> TargetReport:
    """The inverse of `asdict`, for what a worker sent."""
    return TargetReport(**{**data, "results": [CheckReport(**r) for r in data["results"]]})
