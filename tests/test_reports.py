"""The report formats: the same report in each, and the one rendering of a finding."""

import json

import pytest

from attncheck.report import CheckReport, Report, TargetReport, unfinished
from attncheck.reports import formats
from attncheck.reports.text import finding_text, influence_map, summary

FINDING = {
    "claim": "The claim",
    "evidence": "the evidence",
    "case": {"N": 1, "mode": "eval"},
    "influence": [[1, 1], [0, 1]],
    "expected": [[1, 0], [1, 1]],
    "likely_cause": "the cause",
    "fault": None,
    "reproduce": "pytest 'attncheck:m.A::a.b'\n\nimport torch\n\nassert 0",
}
MAP = """\
which key changes which query's output, in the first sample:
          0  1  key
query  0  #  !
       1  o  #
  .  not seen    #  seen and allowed    !  seen but must not be    o  may be seen but is not"""


@pytest.fixture
def report() -> Report:
    results = [CheckReport("a.b", "failed", 3, finding=FINDING), CheckReport("a.c", "inapplicable", reason="no mask")]
    targets = [TargetReport("m.A", "attention", checks=2, results=results), TargetReport("m.B", "kernel", error="gone")]
    return Report({}, targets)


def test_a_finding_in_its_order() -> None:
    assert (
        finding_text(FINDING)
        == f"""\
The claim

the evidence

case: N=1 mode=eval

{MAP}

likely cause: the cause

Reproduce with:
  pytest 'attncheck:m.A::a.b'

    import torch

    assert 0"""
    )


def test_what_is_missing_leaves_no_gap() -> None:
    text = finding_text(unfinished("a.b", "The claim", "it hung", "pytest x").finding or {})
    assert text.startswith("The claim\n\nit hung\n\nlikely cause: not looked for") and text.endswith("\n  pytest x")


@pytest.mark.parametrize(("queries", "keys", "drawn"), [(1, 1, False), (1, 2, True), (12, 12, True), (2, 13, False)])
def test_a_map_of_one_cell_or_too_many_is_not_drawn(queries: int, keys: int, drawn: bool) -> None:
    grid = [[1] * keys for _ in range(queries)]
    assert bool(influence_map(grid, grid)) is drawn
    assert influence_map(None, None) == ""


def test_every_format_renders_every_target(report: Report) -> None:
    assert {"json", "text"} <= set(formats())
    for module in formats().values():
        text = module.render(report)
        assert all(part in text for part in ("m.A", "m.B", "a.b", "The claim", "gone")) and text.endswith("\n")


def test_the_text_ends_with_the_counts(report: Report) -> None:
    lines = formats()["text"].render(report).splitlines()
    assert lines[-2:] == ["attncheck m.A: 1 failed, 1 inapplicable (of 2)", "ERROR attncheck:m.B: gone"]


def test_the_json_is_the_dictionary(report: Report) -> None:
    assert json.loads(formats()["json"].render(report)) == report.to_dict()


def test_inapplicable_is_not_applied(report: Report) -> None:
    first, broken = report.targets
    assert (first.applied, first.ok, broken.ok, report.ok) == (1, False, False, False)
    assert summary(TargetReport("m.A", "attention", checks=3)) == "attncheck m.A: nothing ran (of 3)"
