"""`--target-json`: the report for programs, against its schema."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import attncheck.reports

Runner = Callable[..., pytest.RunResult]
SCHEMA = json.loads((Path(attncheck.reports.__file__).parent / "schema.json").read_text())
BOTH = ("--target=mypkg.Leaky", "--target=mypkg.Unbuildable", "--target-json=out/report.json")


def valid(file: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(file.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    return report


@pytest.fixture
def report(run: Runner, project: Path, odd: str) -> dict[str, Any]:
    checks = [f"--target-checks=causal.{name}" for name in ("future-edit", "future-gradient", "past-matters")]
    run(*BOTH, *checks, odd, "--target-seed=3", "--target-profile=quick")
    return valid(project / "out/report.json")


def test_the_environment_says_how_it_ran(report: dict[str, Any]) -> None:
    assert report["environment"]["profile"] == "quick" and report["environment"]["seed"] == 3


def test_results_are_in_the_order_of_their_ids(report: dict[str, Any]) -> None:
    leaky = report["targets"][0]
    assert leaky["target"] == "mypkg.Leaky" and leaky["error"] is None
    assert leaky["conventions"] == {"mask": {"value": "allowed", "source": "observed"}}
    assert {r["check"]: r["status"] for r in leaky["results"]} == {
        "causal.future-edit": "failed",
        "causal.future-gradient": "failed",
        "causal.past-matters": "passed",
        "odd.breaks": "error",
        "odd.shows-nothing": "error",
    }


def test_a_finding_has_the_keys_of_the_contract(report: dict[str, Any]) -> None:
    finding = report["targets"][0]["results"][0]["finding"]
    required = {"claim", "evidence", "case", "influence", "likely_cause", "fault", "reproduce"}
    assert set(finding) - {"expected", "severity"} == required
    assert finding["influence"] == [[1, 1], [1, 1]] and finding["expected"] == [[1, 0], [1, 1]]
    assert finding["reproduce"].startswith("pytest 'attncheck:mypkg.Leaky::causal.future-edit'")
    assert report["targets"][0]["results"][2]["finding"] is None


def test_a_broken_target_has_an_error_and_no_results(report: dict[str, Any]) -> None:
    broken = report["targets"][1]
    assert broken["results"] == [] and "no constructor" in broken["error"]


def test_a_timeout_is_a_finding(run: Runner, project: Path) -> None:
    run("attncheck:mypkg.Hangs::causal.future-edit", "--target-timeout=0.5", "--target-json=r.json")
    result = valid(project / "r.json")["targets"][0]["results"][0]
    assert result["status"] == "failed" and "0.5 s" in result["finding"]["evidence"]


def test_a_configuration_keeps_its_name(run: Runner, project: Path) -> None:
    run("--target=mypkg.Sound[narrow]", "--target-checks=causal.future-edit", "--target-json=r.json")
    assert valid(project / "r.json")["targets"][0]["target"] == "mypkg.Sound[narrow]"


def test_a_file_in_the_table_is_relative_to_it(run: Runner, project: Path) -> None:
    table = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text('[tool.attncheck]\njson = "from_table.json"\n' + table)
    run("attncheck:mypkg.Sound::causal.future-edit")
    valid(project / "from_table.json")


def test_a_report_that_cannot_be_written(run: Runner, project: Path) -> None:
    result = run("attncheck:mypkg.Sound::causal.future-edit", "--target-json=mypkg.py/r.json")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR: target-json='mypkg.py/r.json' could not be written: *"])


def test_the_schema_is_strict(report: dict[str, Any]) -> None:
    for spoil in (
        lambda r: r.update(extra=1),
        lambda r: r["targets"][0].update(extra=1),
        lambda r: r["targets"][0]["results"][0].update(status="fine"),
        lambda r: r["targets"][0]["results"][0].update(finding=None),
        lambda r: r["targets"][0]["results"][0]["finding"].pop("fault"),
        lambda r: r["targets"][1].update(results=r["targets"][0]["results"]),
    ):
        spoiled = json.loads(json.dumps(report))
        spoil(spoiled)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(spoiled)
