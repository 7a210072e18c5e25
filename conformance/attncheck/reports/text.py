"""The report for people: what is wrong first, then the counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attncheck.report import BAD, CheckReport, Report, TargetReport

WIDEST_MAP = 12
LEGEND = ".  not seen    #  seen and allowed    !  seen but must not be    o  may be seen but is not"


def render(report: Report) -> str:
    parts = [_failures(t) for t in report.targets]
    return "\n".join([*(p for p in parts if p), *(summary(t) for t in report.targets)]) + "\n"


def _failures(target: TargetReport) -> str:
    bad = [r for r in target.results if r.status in BAD]
    leads = leading(bad)
    return "".join(
        f"{r.status.upper()} {target.target} {r.check}\n\n{indented(result_text(r, leads.get(r.check)), '  ')}\n\n"
        for r in bad
    )


def leading(results: Iterable[CheckReport]) -> dict[str, str]:
    """For each check that only shows the consequence of a fault: the first check that was found to have this cause."""
    first: dict[str, str] = {}
    leads = {}
    for result in results:
        fault = result.finding["fault"] if result.finding is not None else None
        if fault is not None and first.setdefault(fault, result.check) != result.check:
            leads[result.check] = first[fault]
    return leads


def causes(target: TargetReport) -> list[str]:
    """A line for each cause, with the checks that it fails; nothing where there is one finding only."""
    found: dict[str, list[str]] = {}
    for r in target.results:
        if r.status == "failed" and r.finding is not None:
            cause = r.finding["likely_cause"].partition(": ")[0] if r.finding["fault"] else "no single known fault"
            found.setdefault(cause, []).append(r.check)
    several = sum(map(len, found.values())) > 1
    return [f"  {cause}: {', '.join(checks)}" for cause, checks in found.items()] if several else []


def summary(target: TargetReport) -> str:
    """One line: the counts, or why there are none."""
    if target.error is not None:
        return f"ERROR attncheck:{target.target}: {target.error}"
    counts = ", ".join(f"{n} {status}" for status, n in target.counts.items()) or "nothing ran"
    return f"attncheck {target.target}: {counts} (of {target.checks})"


def too_few(target: TargetReport, least: int) -> str:
    return f"attncheck {target.target}: only {target.applied} checks applied, expected at least min_checks={least}"


def header(target: TargetReport, explain: bool = False) -> list[str]:
    """What the target became: how it was built, how it is called, and what it promises."""
    if target.error is not None:
        return [f"attncheck {target.target}: {target.error}"]
    lines = [f"attncheck {target.target}: {target.kind}, adapter {target.adapter}, {target.checks} checks"]
    lines += [f"  built with {text}" for text in target.built]
    lines += [f"  {note}" for note in target.notes]
    for key, c in target.conventions.items():
        value = "undecided" if c["value"] is None else c["value"]
        # A name that declares says which; what was observed says so with --target-explain.
        named = f", {c['evidence']}" if c["source"] == "declared" and c["evidence"] else ""
        lines.append(f"  {key} = {value} ({c['source']}{named})")
        if explain and c["evidence"] and not named:
            lines.append(f"    {c['evidence']}")
    return lines


def result_text(result: CheckReport, lead: str | None = None) -> str:
    """Why a result is not a pass; in short where check `lead` has already told of the same cause."""
    if result.finding is None:
        return f"{result.status}: {result.reason}"
    return finding_text(result.finding) if lead is None else consequence_text(result.finding, lead)


def consequence_text(finding: Mapping[str, Any], lead: str) -> str:
    command = finding["reproduce"].partition("\n\n")[0]
    because = f"a consequence of {lead}: {finding['likely_cause']}"
    return "\n\n".join([finding["claim"], finding["evidence"], because, f"Reproduce with:\n  {command}"])


def finding_text(finding: Mapping[str, Any]) -> str:
    """The one rendering of a finding: claim, evidence, case, influence, likely cause, reproduction."""
    case = " ".join(f"{key}={value}" for key, value in finding["case"].items())
    command, _, script = finding["reproduce"].partition("\n\n")
    paragraphs = [
        finding["claim"] + ("" if finding.get("severity", "high") == "high" else f" [{finding['severity']}]"),
        finding["evidence"],
        case and f"case: {case}",
        influence_map(finding["influence"], finding.get("expected")),
        f"likely cause: {finding['likely_cause']}",
        f"Reproduce with:\n  {command}",
        indented(script.rstrip(), "    "),
    ]
    return "\n\n".join(p for p in paragraphs if p)


def influence_map(seen: list[list[int]] | None, allowed: list[list[int]] | None) -> str:
    """Which key moves which query's output; empty where one cell or too many would be drawn."""
    if not seen or not allowed or len(seen) * len(seen[0]) == 1 or max(len(seen), len(seen[0])) > WIDEST_MAP:
        return ""
    signs = {(0, 0): ".", (1, 1): "#", (1, 0): "!", (0, 1): "o"}
    head = "         " + " ".join(f"{s:>2}" for s in range(len(seen[0]))) + "  key"
    rows = [
        f"{'query' if t == 0 else '':>5} {t:>2} " + " ".join(f" {signs[cell]}" for cell in zip(*row, strict=True))
        for t, row in enumerate(zip(seen, allowed, strict=True))
    ]
    return "\n".join(["which key changes which query's output, in the first sample:", head, *rows, f"  {LEGEND}"])


def indented(text: str, by: str) -> str:
    return "\n".join(by + line if line else line for line in text.splitlines())
