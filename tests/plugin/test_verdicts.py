"""What a user sees of each verdict, and the exit code that goes with it."""

from collections.abc import Callable
from pathlib import Path

import pytest

Runner = Callable[..., pytest.RunResult]
ONE = "--target-checks=causal.future-edit"


def test_a_sound_target_passes(run: Runner) -> None:
    result = run("--target=mypkg.Sound", ONE, "--target-checks=contract.shape")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["attncheck mypkg.Sound: 2 passed (of 2)"])


def test_a_library_target_passes_without_any_configuration(run: Runner) -> None:
    result = run("--target=torch.nn.MultiheadAttention", ONE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*mask = blocked (declared)", "attncheck torch.nn.MultiheadAttention: 1 passed (of 1)"]
    )


def test_a_finding_is_the_whole_failure(run: Runner) -> None:
    result = run("--target=mypkg.Leaky", ONE)
    assert result.ret == 1
    result.stdout.fnmatch_lines([
        "*mypkg.Leaky causal.future-edit*",
        "The output at a position does not change when a later token is edited",
        "key 1 is later and must not be seen*",
        "case: N=1 *",
        "query  0  #  !",
        "likely cause: *",
        "Reproduce with:",
        "  pytest 'attncheck:mypkg.Leaky::causal.future-edit'",
        "attncheck mypkg.Leaky: 1 failed (of 1)",
        "FAILED attncheck:mypkg.Leaky::causal.future-edit - *",
    ])  # fmt: skip
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*items.py*")


def test_the_reproduction_repeats_the_options_that_made_the_target(run: Runner) -> None:
    result = run("--target=mypkg.Leaky", ONE, "--target-init=width=12", "--target-seed=0")
    result.stdout.fnmatch_lines(
        ["  pytest 'attncheck:mypkg.Leaky::causal.future-edit' --target-init=width=12 --target-seed=0"]
    )


def test_inapplicable_is_skipped_with_the_reason_and_not_counted_as_passed(run: Runner) -> None:
    result = run("--target=mypkg.Maskless", "--target-checks=mask.allowed-keys", "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([
        "attncheck mypkg.Maskless: 1 inapplicable (of 1)",
        "SKIPPED [[]1] attncheck:mypkg.Maskless: * takes no mask",
    ])  # fmt: skip


def test_a_check_that_broke_or_showed_nothing_is_an_error_and_fails(run: Runner, odd: str) -> None:
    result = run("--target=mypkg.Sound", odd)
    assert result.ret == 1
    result.stdout.fnmatch_lines([
        "error: the check broke*",
        "ZeroDivisionError: the check is at fault",
        "error: its premise never held in * cases: nothing was masked; if the target means it so, declare it *",
        "attncheck mypkg.Sound: 2 error (of 2)",
    ])  # fmt: skip


@pytest.fixture
def expect(project: Path) -> Callable[[str], str]:
    def write(check: str) -> str:
        (project / "known.toml").write_text(f'[[expect]]\ncheck = "{check}"\ntarget = "mypkg.*"\nreason = "old bug"\n')
        return "--target-expect=known.toml"

    return write


def test_a_foreseen_failure_is_xfailed_with_its_reason(run: Runner, expect: Callable[[str], str]) -> None:
    result = run("--target=mypkg.Leaky", ONE, expect("causal.future-*"), "-rx")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["attncheck mypkg.Leaky: 1 xfailed (of 1)", "XFAIL *causal.future-edit - old bug"])


def test_a_foreseen_failure_fails_with_runxfail(run: Runner, expect: Callable[[str], str]) -> None:
    result = run("--target=mypkg.Leaky", ONE, expect("causal.*"), "--runxfail")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The output at a position does not change*", "attncheck mypkg.Leaky: 1 failed (of 1)"])


def test_a_foreseen_failure_that_does_not_come_fails(run: Runner, expect: Callable[[str], str]) -> None:
    result = run("--target=mypkg.Sound", ONE, expect("causal.*"))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*expected to fail (old bug), but passed*", "attncheck mypkg.Sound: 1 xpassed (of 1)"])


def test_an_unknown_expectation_is_a_usage_error(run: Runner, expect: Callable[[str], str]) -> None:
    result = run("--target=mypkg.Sound", expect("causal.futur-edit"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*matches no check; did you mean 'causal.future-edit'?"])


def test_a_hanging_item_fails_within_its_time(run: Runner) -> None:
    result = run("--target=mypkg.Hangs", "--target-timeout=0.5", ONE, "--target-checks=causal.future-gradient")
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["causal.future-edit took longer than 0.5 s*", "attncheck mypkg.Hangs: 2 failed (of 2)"]
    )


def test_an_exiting_item_fails(run: Runner) -> None:
    result = run("--target=mypkg.Exits", ONE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*SystemExit: enough"])


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("mypkg.Unbuildable", "*raised RuntimeError: no constructor"),
        ("mypkg.Uncallable", "*raised RuntimeError: no forward"),
        ("mypkg.Wordy", "*the output is of type str, expected a tensor"),
        ("mypkg.Quits", "*raised SystemExit: 0"),
        ("mypkg.Endless", "*took longer than 0.5 s"),
        ("mypkg.Adapter", "*without call(query, key, value, allowed)"),
        ("mypkg.Soundd", "*mypkg has no 'Soundd'; did you mean Sound*"),
        ("no_such_package.Name", "*No module named 'no_such_package'"),
        ("raises_on_import.Name", "*No module named 'no_such_library'"),
        ("exits_on_import.Name", "*called sys.exit('this is a script')*"),
        ("no_file.py:Name", "*no_file.py does not exist"),
    ],
)
def test_a_broken_target_is_reported_and_the_others_run(run: Runner, spec: str, error: str) -> None:
    result = run("--target=" + spec, "--target=mypkg.Sound", ONE, "--target-timeout=0.5")
    assert result.ret == 4
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"ERROR attncheck:{spec}: {error}", "attncheck mypkg.Sound: 1 passed (of 1)"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_device_that_is_not_there_breaks_the_target(run: Runner) -> None:
    result = run("--target=mypkg.Sound", "--target-device=no-such-device")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR attncheck:mypkg.Sound: *"])


def test_findings_win_over_broken_targets(run: Runner) -> None:
    assert run("--target=mypkg.Unbuildable", "--target=mypkg.Leaky", ONE).ret == 1


def test_only_broken_targets(run: Runner) -> None:
    result = run("--target=mypkg.Unbuildable", "-q")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR attncheck:mypkg.Unbuildable: *"])


def test_too_few_applied_checks_fail(run: Runner) -> None:
    result = run("--target=mypkg.Maskless", "--target-checks=mask.*", "--target-min-checks=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*only 0 checks applied, expected at least min_checks=1"])


def test_a_floor_in_the_table_speaks_of_whole_runs_only(run: Runner, project: Path) -> None:
    table = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text("[tool.attncheck]\nmin_checks = 3\n" + table)
    assert run("attncheck:mypkg.Sound::causal.future-edit").ret == 0
    assert run("--target=mypkg.Sound", "-k", "future-edit").ret == 0
    assert run("--target=mypkg.Sound", ONE).ret == 1


def test_what_a_target_prints_and_warns_of_disturbs_nothing(run: Runner) -> None:
    result = run("--target=mypkg.Prints", ONE, "-W", "error")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*by the target*")
