"""`attncheck.run_checks`, `attncheck.parametrize`, and what `import attncheck` costs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import attncheck
from attncheck_reference import MultiHeadAttention

SETTINGS = {"width": 24, "heads": 4, "dead_rows": "zero"}


class Leaky(MultiHeadAttention):
    """Its mask is accepted and has no effect."""

    def forward(self, query, key=None, value=None, allowed=None, bias=None, weights=True):
        return super().forward(query, key, value, None, None, weights)


def test_the_public_names_are_sorted_and_there() -> None:
    assert attncheck.__all__ == sorted(attncheck.__all__)
    assert all(getattr(attncheck, name) is not None for name in attncheck.__all__)
    with pytest.raises(AttributeError, match="no attribute 'run_check'"):
        attncheck.run_check  # noqa: B018


def test_importing_attncheck_imports_no_torch() -> None:
    code = "import sys, attncheck, attncheck.settings, attncheck.reports.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0


def test_a_class_by_its_spec() -> None:
    report = attncheck.run_checks("attncheck_reference.MultiHeadAttention", init=SETTINGS, checks=["causal.*"])
    assert report.ok
    statuses = {r.check: r.status for r in report.targets[0].results}
    assert statuses.pop("causal.window") == "inapplicable"
    assert set(statuses.values()) == {"passed"}
    assert report.to_dict()["schema"] == "attncheck-report/1"


@pytest.mark.parametrize("target", [torch.nn.MultiheadAttention, torch.nn.MultiheadAttention(24, 4, batch_first=True)])
def test_a_class_and_an_instance(target: object) -> None:
    report = attncheck.run_checks(target, profile="quick", checks=["causal.future-edit"])
    assert report.ok and report.environment["profile"] == "quick"
    assert report.targets[0].target == "torch.nn.modules.activation.MultiheadAttention"
    assert report.targets[0].results[0].status == "passed"


def test_a_function() -> None:
    report = attncheck.run_checks(torch.nn.functional.scaled_dot_product_attention, checks=["causal.future-edit"])
    assert report.targets[0].error is None and report.ok


def test_a_finding_is_not_ok() -> None:
    report = attncheck.run_checks(Leaky, init=SETTINGS, checks=["causal.future-edit"])
    (result,) = report.targets[0].results
    assert not report.ok and result.status == "failed" and result.finding is not None
    assert result.finding["reproduce"].startswith("attncheck.run_checks(")


def test_a_broken_target_is_not_ok() -> None:
    report = attncheck.run_checks("attncheck_reference.NoSuchName")
    assert not report.ok and "NoSuchName" in (report.targets[0].error or "") and report.targets[0].results == []


def test_a_report_without_targets_is_not_ok() -> None:
    assert not attncheck.Report({}).ok


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(Exception, match="profile='fast' is not known"):
        attncheck.run_checks("a.B", profile="fast")


PARAMETRIZED = """
import attncheck, torch
from attncheck_reference import MultiHeadAttention

class Leaky(MultiHeadAttention):
    def forward(self, query, key=None, value=None, allowed=None, bias=None, weights=True):
        return super().forward(query, key, value, None, None, weights)

QUICK = dict(profile="quick", checks=["causal.future-edit", "mask.allowed-keys"])

@attncheck.parametrize([MultiHeadAttention, Leaky], init={"width": 24, "heads": 4, "dead_rows": "zero"}, **QUICK)
def test_own(check):
    check()

@attncheck.parametrize([torch.nn.MultiheadAttention(24, 4), torch.nn.MultiheadAttention(16, 2), "no.Such"], **QUICK)
def test_instances(check):
    check()
"""


def test_parametrize(pytester: pytest.Pytester, loaded: None) -> None:
    pytester.makepyfile(test_it=PARAMETRIZED)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-v")
    ids = [line.split()[0].partition("::")[2] for line in result.outlines if line.startswith("test_it.py::")]
    assert ids == [
        "test_own[MultiHeadAttention-causal.future-edit]",
        "test_own[MultiHeadAttention-mask.allowed-keys]",
        "test_own[Leaky-causal.future-edit]",
        "test_own[Leaky-mask.allowed-keys]",
        "test_instances[MultiheadAttention-causal.future-edit]",
        "test_instances[MultiheadAttention-mask.allowed-keys]",
        "test_instances[MultiheadAttention2-causal.future-edit]",
        "test_instances[MultiheadAttention2-mask.allowed-keys]",
        "test_instances[Such]",
    ]
    result.assert_outcomes(passed=7, failed=2)
    result.stdout.fnmatch_lines([
        "E * The output at a position does not change when a later token is edited",
        "*pytest 'test_it.py::test_own[[]Leaky-causal.future-edit[]]'",
        "*No module named 'no'",
    ])  # fmt: skip


VERDICTS = """
import attncheck, torch

@attncheck.parametrize([torch.nn.MultiheadAttention(24, 4)], checks=["mask.fully-masked"])
def test_known(check):
    check()

@attncheck.parametrize(["mypkg.Maskless"], checks=["mask.allowed-keys"])
def test_maskless(check):
    check()
"""


def test_parametrize_skips_and_xfails(pytester: pytest.Pytester, loaded: None) -> None:
    shutil.copytree(Path(__file__).parent / "plugin" / "project", pytester.path, dirs_exist_ok=True)
    pytester.makepyfile(test_it=VERDICTS)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-rsx")
    result.assert_outcomes(xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*takes no mask", "XFAIL*160064*"])
