"""A pytest run that asks nothing of the plugin pays nothing for it."""

from pathlib import Path

import pytest

SPY = """
import sys

def test_what_is_imported():
    heavy = [m for m in ("torch", "attncheck", "attncheck_pytest.session") if m in sys.modules]
    assert heavy == {expected}
"""
PLUGIN = ("-p", "attncheck_pytest", "test_spy.py")


def test_without_a_target_nothing_is_imported(pytester: pytest.Pytester, project: Path) -> None:
    (project / "test_spy.py").write_text(SPY.format(expected=[]))
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_the_spy_sees_what_a_target_brings(pytester: pytest.Pytester, project: Path) -> None:
    (project / "test_spy.py").write_text(SPY.format(expected=["torch", "attncheck", "attncheck_pytest.session"]))
    result = pytester.runpytest_subprocess(*PLUGIN, "attncheck:mypkg.Sound::causal.future-edit")
    result.assert_outcomes(passed=2)
