"""Runs pytest in a copy of the project beside this file, with the plugin."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attncheck import registry
from attncheck.compare import Vacuous
from attncheck.subject import Case, Subject

Runner = Callable[..., pytest.RunResult]
PLUGIN = ("-p", "attncheck_pytest", "-p", "no:randomly")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, loaded: None) -> Path:
    shutil.copytree(Path(__file__).parent / "project", pytester.path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return pytester.path


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> str:
    """Two checks that are themselves at fault, for runs in this process: one breaks, one shows nothing."""

    def breaks(subject: Subject, case: Case, oracle: Subject | None) -> None:
        raise ZeroDivisionError("the check is at fault")

    def shows_nothing(subject: Subject, case: Case, oracle: Subject | None) -> None:
        raise Vacuous("nothing was masked")

    for id, body in (("odd.breaks", breaks), ("odd.shows-nothing", shows_nothing)):
        monkeypatch.setitem(registry.CHECKS, id, registry.Check(id, body, ("attention",), ("mask.ignored",)))
    return "--target-checks=odd.*"


@pytest.fixture
def run(pytester: pytest.Pytester, project: Path) -> Runner:
    """pytest with arguments, in this process: quick."""
    return lambda *args: pytester.runpytest_inprocess(*PLUGIN, *args)


@pytest.fixture
def spawn(pytester: pytest.Pytester, project: Path) -> Runner:
    """pytest with arguments in a process of its own: for xdist, coverage, and targets that kill it."""
    return lambda *args: pytester.runpytest_subprocess(*PLUGIN, *args, timeout=120)
