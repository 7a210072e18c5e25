"""pytest -n 2: the same verdicts and the same report, gathered by a process that collects nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., pytest.RunResult]


def without_times(file: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(file.read_text())
    for target in report["targets"]:
        for result in target["results"]:
            result["seconds"] = 0
    return report


def test_the_same_report_as_alone(run: Runner, spawn: Runner, project: Path) -> None:
    args = ("--target=mypkg.Leaky", "--target=mypkg.Maskless", "--target=mypkg.Unbuildable", "--target-checks=*mask*")
    alone = run(*args, "--target-json=alone.json")
    shared = spawn(*args, "--target-json=shared.json", "-n", "2")
    assert alone.ret == shared.ret == 1
    assert alone.parseoutcomes() == shared.parseoutcomes()
    assert without_times(project / "alone.json") == without_times(project / "shared.json")
    shared.stdout.fnmatch_lines([
        "attncheck mypkg.Leaky: * (of *)",
        "ERROR attncheck:mypkg.Unbuildable: *no constructor",
        "*mask = allowed (observed)",
    ])  # fmt: skip


def test_a_target_that_kills_its_worker_fails_in_that_item_only(spawn: Runner, project: Path) -> None:
    """And ids reach the workers, and no path that nobody typed."""
    (project / "test_own.py").write_text("def test_own():\n    assert 0\n")
    ids = [f"attncheck:mypkg.{name}::causal.future-edit" for name in ("Dies", "Sound")]
    result = spawn(*ids, "-n", "2", "--target-json=r.json")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["attncheck mypkg.Dies: 1 failed (of 1)", "attncheck mypkg.Sound: 1 passed (of 1)"])
    dies = json.loads((project / "r.json").read_text())["targets"][0]["results"][0]
    assert dies["status"] == "failed" and "crashed" in dies["finding"]["evidence"]


def test_a_usage_error_that_only_a_worker_sees(spawn: Runner) -> None:
    result = spawn("attncheck:mypkg.Sound::causal.futureedit", "-n", "1")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR: *matches no check*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_only_broken_targets(spawn: Runner) -> None:
    assert spawn("--target=mypkg.Unbuildable", "-n", "1").ret == 4
