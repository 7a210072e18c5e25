"""Options and the table of pyproject.toml, as a user meets them."""

from collections.abc import Callable
from pathlib import Path

import pytest

Runner = Callable[..., pytest.RunResult]
SOUND = "--target=mypkg.Sound"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--target-profile=quik", "*target-profile='quik' is not known; did you mean 'quick'?"),
        ("--target-kind=atention", "*target-kind='atention' is not known; did you mean 'attention'?"),
        ("--target-dtype=float23", "*target-dtype='float23' is not known; did you mean 'float32'?"),
        ("--target-declare=mask=alowed", "*mask='alowed' is not known; did you mean 'allowed'?"),
        ("--target-declare=msk=allowed", "*'msk' is not known; did you mean 'mask'?"),
        ("--target-declare=mask", "*expected KEY=VALUE, as mask=allowed"),
        ("--target-init=width", "*expected keywords with Python literals*"),
        ("--target-checks=mask.polarty", "*matches no check; did you mean 'mask.polarity'?"),
        ("--target-seed=x", "*--target-seed*"),
        ("--target-expect=no_such.toml", "*no_such.toml*No such file*"),
        ("--target-json=.", "*target-json='.' is a directory*"),
    ],
)
def test_a_bad_value_is_a_usage_error(run: Runner, option: str, text: str) -> None:
    result = run(SOUND, option)
    assert result.ret == 4
    result.stderr.fnmatch_lines([text])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("profil = 'quick'", "*key='profil' is not known; did you mean 'profile'?"),
        ("targets.'a.B'.ini = {}", "*key='ini' is not known; did you mean 'init'?"),
        ("seed = 'x'", "*seed='x': expected a whole number*"),
        ("checks = 'mask.*'", "*expected a list of globs*"),
        ("profile = ", "*pyproject.toml*"),
    ],
)
def test_a_bad_table_is_a_usage_error(run: Runner, project: Path, table: str, text: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.attncheck]\n{table}\n")
    result = run(SOUND)
    assert result.ret == 4
    result.stderr.fnmatch_lines([text])


def test_one_target_options_speak_of_one_target(run: Runner) -> None:
    result = run(SOUND, "--target=mypkg.Leaky", "--target-init=width=12")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*target-init speaks of one target, but there are 2*"])


def test_configured_runs_the_whole_table(run: Runner, project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "[tool" in line or "sound" in line))
    result = run("--target=configured", "--target-checks=causal.future-edit")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["attncheck mypkg.Sound: 1 passed (of 1)", "attncheck mypkg.Sound[[]narrow]: 1 passed (of 1)"]
    )
    file.write_text("")
    assert run("--target=configured").ret == 4


def test_the_command_line_wins_over_the_table(run: Runner, project: Path) -> None:
    narrow = run("--target=mypkg.Sound[narrow]", "--collect-only")
    narrow.stdout.fnmatch_lines(["*built with Sound({'width': 12})"])
    run("--target=mypkg.Sound[narrow]", "--target-init=width=12, bias=2", "--collect-only").stdout.fnmatch_lines(
        ["ERROR attncheck:mypkg.Sound[[]narrow]: *bias*"]
    )


def test_the_header_names_target_kind_adapter_and_conventions(run: Runner) -> None:
    result = run(SOUND, "--collect-only")
    result.stdout.fnmatch_lines([
        "attncheck mypkg.Sound: attention, adapter mypkg:sound, * checks",
        "  built with Sound({})",
        "  mask = allowed (observed)",
    ])  # fmt: skip
    result.stdout.no_fnmatch_line("*key 2 moved*")


def test_explain_prints_the_evidence(run: Runner) -> None:
    run(SOUND, "--target-explain", "--collect-only").stdout.fnmatch_lines(
        ["  mask = allowed (observed)", "    key 2 moved the output only where True"]
    )


def test_quiet_prints_the_counts_alone(run: Runner) -> None:
    result = run(SOUND, "--target-checks=causal.future-edit", "-q")
    result.stdout.fnmatch_lines(["attncheck mypkg.Sound: 1 passed (of 1)"])
    result.stdout.no_fnmatch_line("*mask = allowed*")
    result.stdout.no_fnmatch_line("=*attncheck*=")


def test_the_profile_reaches_the_checks(run: Runner, project: Path) -> None:
    import json

    counts = []
    for profile in ("quick", "default"):
        run(f"--target-profile={profile}", "attncheck:mypkg.Sound::causal.future-edit", "--target-json=r.json")
        counts.append(json.loads((project / "r.json").read_text())["targets"][0]["results"][0]["cases"])
    assert 0 < counts[0] < counts[1]


def test_a_project_that_is_not_installed_is_found_in_src(run: Runner, project: Path) -> None:
    (project / "src").mkdir()
    (project / "mypkg.py").rename(project / "src/mypkg.py")
    assert run(SOUND, "--target-checks=causal.future-edit").ret == 0


def test_a_project_is_found_through_pythonpath(run: Runner, project: Path) -> None:
    (project / "lib").mkdir()
    (project / "mypkg.py").rename(project / "lib/mypkg.py")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = lib\n")
    assert run(SOUND, "--target-checks=causal.future-edit").ret == 0
