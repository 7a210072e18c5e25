"""Node ids, and which arguments of the command line are collected."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Runner = Callable[..., pytest.RunResult]
ID = "attncheck:mypkg.Sound::causal.future-edit"


def ids_of(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def collected(run: Runner, *args: str) -> list[str]:
    return ids_of(run(*args, "--collect-only", "-q"))


def test_every_id_is_accepted_back(run: Runner) -> None:
    printed = collected(run, "--target=mypkg.Sound", "--target=mypkg.Sound[narrow]")
    assert ID in printed and "attncheck:mypkg.Sound[narrow]::causal.future-edit" in printed
    assert len(printed) == len(set(printed)) > 20
    assert collected(run, *printed) == printed
    assert collected(run, *printed, "--target=mypkg.Sound", "--target=mypkg.Sound[narrow]") == printed


@pytest.mark.parametrize("spec", ["mypkg.Sound", "mypkg.Sound[narrow]", "mypkg:Sound", "mypkg.py:Leaky"])
def test_one_id_runs_one_item(run: Runner, spec: str) -> None:
    id = f"attncheck:{spec}::causal.future-edit"
    assert collected(run, id) == [id]
    assert collected(run, id, f"--target={spec}") == [id]


def test_an_id_without_a_check_stands_for_the_target(run: Runner) -> None:
    assert collected(run, "attncheck:mypkg.Sound") == collected(run, "--target=mypkg.Sound")
    assert collected(run, "attncheck:mypkg.Sound", ID) == collected(run, "--target=mypkg.Sound")


def test_ids_select_among_the_targets(run: Runner) -> None:
    assert collected(run, "--target=configured", ID) == [ID]


def test_an_id_overrules_the_globs(run: Runner) -> None:
    assert collected(run, ID, "--target-checks=mask.*") == [ID]


def test_an_id_as_printed_in_a_subdirectory(run: Runner, project: Path) -> None:
    (project / "sub").mkdir()
    os.chdir(project / "sub")
    printed = collected(run, "--rootdir=..", "../" + ID)
    assert len(printed) == 1 and printed[0].endswith(ID)


@pytest.mark.parametrize("args", [(), ("--target=mypkg.Sound",)])
def test_an_unknown_id_is_a_usage_error_with_the_closest(run: Runner, args: tuple[str, ...]) -> None:
    result = run("attncheck:mypkg.Sound::causal.futureedit", *args)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: *matches no check of kind attention; did you mean '{ID}'?"])


def test_an_unknown_configuration_is_a_usage_error_with_the_closest(run: Runner) -> None:
    result = run("attncheck:mypkg.Sound[narow]::causal.future-edit")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*did you mean 'mypkg.Sound[[]narrow]'?"])


def test_an_unknown_target_in_an_id_is_broken(run: Runner) -> None:
    result = run("attncheck:mypkg.Sond::causal.future-edit")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR attncheck:mypkg.Sond: *did you mean Sound*"])


@pytest.fixture
def own_tests(project: Path) -> Path:
    """Tests of the project itself, which its configuration names in every way."""
    for name in ("test_typed.py", "test_listed.py", "test_added.py"):
        (project / name).write_text("def test_own():\n    pass\n")
    head = '[tool.pytest.ini_options]\ntestpaths = ["test_listed.py"]\naddopts = "test_added.py"\n'
    (project / "pyproject.toml").write_text(head + (project / "pyproject.toml").read_text())
    return project


def test_without_a_typed_path_only_the_conformance_items_run(run: Runner, own_tests: Path) -> None:
    assert collected(run, "--target=mypkg.Sound", "--target-checks=causal.future-edit") == [ID]
    assert collected(run, ID) == [ID]


def test_paths_of_the_environment_are_not_typed(run: Runner, own_tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "test_listed.py")
    assert collected(run, ID) == [ID]


def test_typed_paths_run_beside(run: Runner, own_tests: Path) -> None:
    assert collected(run, ID, "test_typed.py") == ["test_typed.py::test_own", ID]
    assert collected(run, ID, "test_typed.py::test_own") == ["test_typed.py::test_own", ID]
    # The value of an option is no path, even where it looks like one of addopts.
    assert collected(run, ID, "--deselect", "test_added.py") == [ID]


def test_without_a_target_nothing_changes(run: Runner, own_tests: Path) -> None:
    assert collected(run) == ["test_added.py::test_own"]
    (own_tests / "pyproject.toml").write_text("[tool.attncheck]\nno_such_key = 1\n")
    assert run("test_typed.py").ret == 0
    (own_tests / "about_attncheck:").mkdir()
    (own_tests / "test_typed.py").rename(own_tests / "about_attncheck:" / "test_typed.py")
    assert run("about_attncheck:/test_typed.py").ret == 0
