"""The text report where one fault fails several checks: told once in full, then as a consequence, and counted."""

import re
from typing import Any

from attncheck.report import CheckReport, Report, TargetReport
from attncheck.reports.text import causes, consequence_text, leading, render, result_text


def finding(fault: str | None, cause: str = "The scale is wrong (a.scale): gives the same outputs") -> dict[str, Any]:
    return {
        "claim": "The claim", "evidence": "the evidence", "case": {"N": 1}, "influence": None, "expected": None,
        "likely_cause": cause, "fault": fault, "reproduce": "pytest 'attncheck:m.A::a.b'\n\nimport torch\n\nassert 0",
    }  # fmt: skip


def failed(check: str, fault: str | None, **told: Any) -> CheckReport:
    return CheckReport(check, "failed", finding=finding(fault, **told))


MASK = {"cause": "The mask is inverted (a.mask): fails in the same way"}
RESULTS = [
    failed("a.first", "a.scale"), failed("b.other", "a.mask", **MASK), failed("c.second", "a.scale"),
    failed("d.unknown", None, cause="no single known fault explains it"), CheckReport("e.broken", "error", reason="x"),
    failed("f.unknown", None, cause="the scores are scaled by 0.9: declare it"), failed("g.third", "a.scale"),
]  # fmt: skip


def target(*results: CheckReport) -> TargetReport:
    return TargetReport("m.A", "attention", checks=len(results), results=list(results))


def test_the_first_check_of_a_fault_leads_the_others() -> None:
    assert leading(RESULTS) == {"c.second": "a.first", "g.third": "a.first"}
    assert leading(reversed(RESULTS)) == {"c.second": "g.third", "a.first": "g.third"}
    assert leading([]) == {}


def test_findings_without_a_fault_lead_nothing() -> None:
    assert leading([r for r in RESULTS if r.finding is None or r.finding["fault"] is None]) == {}


def test_each_cause_with_its_checks() -> None:
    assert causes(target(*RESULTS)) == [
        "  The scale is wrong (a.scale): a.first, c.second, g.third",
        "  The mask is inverted (a.mask): b.other",
        "  no single known fault: d.unknown, f.unknown",
    ]


def test_a_single_finding_needs_no_list() -> None:
    assert causes(target(RESULTS[0], RESULTS[4])) == []
    assert causes(target()) == []
    assert causes(target(RESULTS[0], RESULTS[2])) == ["  The scale is wrong (a.scale): a.first, c.second"]


def test_what_was_foreseen_is_in_no_list() -> None:
    foreseen = CheckReport("h.known", "xfailed", finding=finding("a.scale"))
    assert causes(target(RESULTS[0], foreseen)) == []


CONSEQUENCE = """\
The claim

the evidence

a consequence of a.first: The scale is wrong (a.scale): gives the same outputs

Reproduce with:
  pytest 'attncheck:m.A::a.b'"""


def test_a_consequence_is_told_in_short() -> None:
    assert consequence_text(finding("a.scale"), "a.first") == CONSEQUENCE
    assert result_text(RESULTS[2], "a.first") == CONSEQUENCE
    full = result_text(RESULTS[2])
    assert "likely cause: The scale is wrong" in full and "assert 0" in full and "a consequence of" not in full
    assert result_text(RESULTS[4], "a.first") == "error: x"


def test_the_report_tells_one_cause_once() -> None:
    text = render(Report({}, [target(*RESULTS)]))
    pieces = re.split(r"^(?:FAILED|ERROR) m\.A (\S+)$", text, flags=re.MULTILINE)
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    assert list(parts) == [r.check for r in RESULTS]
    assert [check for check, part in parts.items() if "a consequence of a.first" in part] == ["c.second", "g.third"]
    scripts = ["a.first", "b.other", "d.unknown", "f.unknown"]
    assert [check for check, part in parts.items() if "assert 0" in part] == scripts


def test_a_cause_of_another_target_leads_nothing_here() -> None:
    other = TargetReport("m.B", "attention", checks=1, results=[failed("c.second", "a.scale")])
    text = render(Report({}, [target(RESULTS[0]), other]))
    assert "a consequence of" not in text
    assert text.count("assert 0") == 2
