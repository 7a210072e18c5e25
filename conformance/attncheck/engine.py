"""(check, target) -> result. The only `try` besides `attempt`."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import hypothesis
import torch

from attncheck.cases import cases, drawn_cases, plainer, smaller
from attncheck.compare import Failure, Inapplicable, Rounding, Vacuous
from attncheck.finding import Cause, Finding, found
from attncheck.registry import Check
from attncheck.subject import Case, Convention, Subject


@dataclass(frozen=True)
class Expectation:
    """A known deviation. Strict: passing is a failure too, unless the target only contains the known module."""

    check: str
    reason: str
    issue: str = ""
    strict: bool = True


@dataclass
class Target:
    """What one spec became: its built configurations, each with the oracle that shares its weights."""

    spec: str
    kind: str
    adapter: str
    subjects: list[Subject] = field(default_factory=list)
    oracles: list[Subject | None] = field(default_factory=list)
    built: list[str] = field(default_factory=list)  # how each was built and is called, for the header
    notes: list[str] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    explain: Callable[[Check, Failure, Case], Cause] = lambda check, failure, case: Cause()
    error: str | None = None

    @property
    def conventions(self) -> dict[str, Convention]:
        return self.subjects[0].conventions if self.subjects else {}


@dataclass
class Result:
    """One check on one target."""

    check: str
    status: str  # passed, failed, xfailed, xpassed, inapplicable, error
    cases: int = 0
    seconds: float = 0.0
    reason: str | None = None
    finding: Finding | None = None


def run(check: Check, target: Target, profile: str = "default", seed: int = 0) -> Result:
    """Walk the check's cases on every configuration; stop at the first finding, and make it small."""
    if check.profile == "deep" and profile != "deep":
        return Result(check.id, "inapplicable", reason="takes seconds, and runs in the deep profile only")
    start = time.perf_counter()
    with quiet():
        result = _walk(check, target, profile, seed)
    result.seconds = round(time.perf_counter() - start, 4)
    return _expected(result, target)


def fails(check: Check, target: Target, profile: str = "default") -> bool:
    """Whether the check has any finding; nothing is made small or explained."""
    if check.profile == "deep" and profile != "deep":
        return False
    with quiet():
        return any(
            judge(check, subject, case, oracle).failure is not None
            for config, (subject, oracle) in enumerate(zip(target.subjects, target.oracles, strict=True))
            if not any(map(subject.lacks, check.needs))
            for case in cases(check, subject, profile, config)
        )


@contextmanager
def quiet() -> Iterator[None]:
    """One thread (tiny calls stall on more), the caller's random state kept, the target's warnings not our errors."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _walk(check: Check, target: Target, profile: str, seed: int) -> Result:
    tally: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    built = list(zip(target.subjects, target.oracles, strict=True))[: 1 if profile == "quick" else None]
    for config, (subject, oracle) in enumerate(built):
        lacking = [why for why in map(subject.lacks, check.needs) if why]
        if lacking:
            reasons.setdefault("inapplicable", lacking[0])
            continue
        for case in _all_cases(check, subject, oracle, profile, config, seed):
            verdict = judge(check, subject, case, oracle)
            tally[verdict.status] += 1
            if verdict.failure is not None:
                return _failed(check, target, subject, case, oracle, verdict.failure, tally.total())
            if verdict.status == "error":
                return Result(check.id, "error", tally.total(), reason=f"the check broke in {case}: {verdict.reason}")
            reasons.setdefault(verdict.status, verdict.reason)
    return _settled(check, tally, reasons)


def _settled(check: Check, tally: Counter[str], reasons: dict[str, str]) -> Result:
    count = tally.total()
    if tally["passed"] or tally["rounding"]:
        return Result(check.id, "passed", count, reason=reasons.get("rounding"))
    if tally["vacuous"]:
        why = (
            f"its premise never held in {count} cases: {reasons['vacuous']}; if the target means it so, declare it "
            f"(--target-declare=KEY=VALUE), or leave the check out (--target-checks='!{check.id}')"
        )
        return Result(check.id, "error", count, reason=why)
    return Result(check.id, "inapplicable", count, reason=reasons.get("inapplicable", "no case fits this target"))


@dataclass(frozen=True)
class Verdict:
    status: str  # passed, failed, vacuous, inapplicable, rounding, error
    reason: str = ""
    failure: Failure | None = None


def judge(check: Check, subject: Subject, case: Case, oracle: Subject | None) -> Verdict:
    """One check in one case. What a query gives that the target itself leaves without a key is a policy, not judged."""
    if not bool(subject.pattern(case.T, case.S).any(-1).all()):
        return Verdict("inapplicable", "the target's own pattern leaves a query without a key")
    try:
        check.run(subject, case, oracle)
    except Failure as failure:
        return Verdict("failed", failure=failure)
    except (Vacuous, Inapplicable, Rounding) as why:
        return Verdict(type(why).__name__.lower(), str(why))
    except Exception:
        return Verdict("error", traceback.format_exc(limit=-3))
    return Verdict("passed")


def _all_cases(
    check: Check, subject: Subject, oracle: Subject | None, profile: str, config: int, seed: int
) -> Iterator[Case]:
    table = cases(check, subject, profile, config, seed)
    yield from table
    # What takes seconds is not drawn as well.
    if table and profile == "deep" != check.profile and config == 0:
        yield from _drawn(check, subject, oracle, seed)


def _drawn(check: Check, subject: Subject, oracle: Subject | None, seed: int) -> list[Case]:
    """Random cases; where one fails, only Hypothesis's smallest."""
    seen: list[Case] = []
    bad: list[Case] = []

    def body(case: Case) -> None:
        seen.append(case)
        verdict = judge(check, subject, case, oracle)
        if verdict.failure is not None:
            bad.append(case)
            raise verdict.failure

    settings = hypothesis.settings(
        max_examples=40, database=None, deadline=None, derandomize=False, print_blob=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )  # fmt: skip
    try:
        hypothesis.seed(seed)(settings(hypothesis.given(drawn_cases(check, subject))(body)))()
    except Failure:
        return bad[-1:]
    return seen


def _failed(
    check: Check, target: Target, subject: Subject, case: Case, oracle: Subject | None, failure: Failure, count: int
) -> Result:
    def fails(less: Case) -> Failure | None:
        fits = check.where is None or check.where(less)
        return judge(check, subject, less, oracle).failure if fits else None

    for change in plainer(check, subject):
        less = change(case)
        if less != case and (still := fails(less)):
            case, failure = less, still
    for less in smaller(case):
        if still := fails(less):
            case, failure = less, still
            break
    finding = found(check, target.spec, subject, case, failure, target.explain(check, failure, case))
    return Result(check.id, "failed", count, finding=finding)


def _expected(result: Result, target: Target) -> Result:
    """Turn a foreseen failure into xfailed, and a strict one that did not come into xpassed."""
    for expectation in target.expectations:
        if expectation.check != result.check:
            continue
        reason = " ".join(filter(None, (expectation.reason, expectation.issue)))
        if result.status == "failed":
            result.status, result.reason = "xfailed", reason
        elif result.status == "passed" and expectation.strict:
            result.status, result.reason = "xpassed", f"expected to fail ({reason}), but passed: drop the expectation"
    return result
