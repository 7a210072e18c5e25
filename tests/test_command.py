"""The `attncheck` command and its exit codes."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attncheck import wiring
from attncheck.command import main

PROJECT = Path(__file__).parent / "plugin" / "project"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(PROJECT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    sys.modules.pop("mypkg", None)


def test_a_sound_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mypkg.Sound", "--checks=causal.future-edit"]) == 0
    out = capsys.readouterr().out
    assert "mask = allowed (observed)" in out and out.endswith("attncheck mypkg.Sound: 1 passed (of 1)\n")


def test_a_finding_is_printed_before_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mypkg.Leaky", "--checks=causal.future-edit", "--json=out/r.json"]) == 1
    out = capsys.readouterr().out
    assert "FAILED mypkg.Leaky causal.future-edit\n\n  The output at a position" in out
    assert out.endswith("attncheck mypkg.Leaky: 1 failed (of 1)\n")
    assert json.loads(Path("out/r.json").read_text())["targets"][0]["results"][0]["status"] == "failed"


@pytest.mark.parametrize(
    ("specs", "code"),
    [
        (["mypkg.Unbuildable"], 2),
        (["mypkg.Unbuildable", "mypkg.Sound"], 2),
        (["mypkg.Unbuildable", "mypkg.Leaky"], 1),
    ],
)
def test_findings_win_over_broken_targets(specs: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *specs, "--checks=causal.future-edit"]) == code
    assert "ERROR attncheck:mypkg.Unbuildable: building" in capsys.readouterr().out


def test_too_few_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mypkg.Sound", "--checks=causal.future-edit", "--min-checks=2"]) == 1
    assert "only 1 checks applied, expected at least min_checks=2" in capsys.readouterr().out


def test_explained_conventions(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "mypkg.Sound", "--checks=causal.future-edit", "--explain"])
    assert "key 2 moved the output only where True" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "mypkg.Sound", "--profile=quik"], "attncheck: profile='quik' is not known; did you mean 'quick'?\n"),
        (["run", "mypkg.Sound", "--checks=mask.polarty"], "did you mean 'mask.polarity'?\n"),
        (["explain", "mask.polarty"], "attncheck: id='mask.polarty' is no check; did you mean 'mask.polarity'?\n"),
    ],
)
def test_a_bad_argument_is_one_line_and_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.endswith(text) and error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["run"], ["no-such"], ["run", "a.B", "--seed=x"]])
def test_arguments_that_argparse_refuses_are_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_list_names_each_check_with_its_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert any(line.startswith("causal.future-edit ") and "does not change" in line for line in lines)


def test_explain_tells_what_a_check_must_catch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "causal.future-edit"]) == 0
    out = capsys.readouterr().out
    assert "needs: causality" in out
    assert "  causal.ignored " in out and "not among the known faults" not in out


@pytest.mark.parametrize(("caught", "code"), [(["a.b", "c.d"], 0), (["c.d"], 1), ([], 1)])
def test_selftest_fails_where_a_check_misses_its_fault(
    caught: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wiring, "selftest", lambda: [("one.fault", caught, ["a.b"]), ("other.fault", ["a.b"], [])])
    assert main(["selftest"]) == code
    out = capsys.readouterr().out
    assert ("MISSED BY a.b" in out) is bool(code)
    assert out.endswith(f"2 faults, {code} missed by a check that must catch them\n")
