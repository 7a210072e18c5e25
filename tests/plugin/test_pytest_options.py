"""The options of pytest and of its plugins act on conformance items as on any other."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

Runner = Callable[..., pytest.RunResult]
NAMES = ("causal.future-edit", "causal.future-gradient", "causal.past-matters")
LEAKY = ("--target=mypkg.Leaky", *(f"--target-checks={name}" for name in NAMES))  # two fail, one passes
EDIT, GRADIENT, PAST = (f"attncheck:mypkg.Leaky::{name}" for name in NAMES)


def ids_of(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-k", "gradient"), [GRADIENT]),
        (("-k", "mypkg.Leaky and not causal.future-gradient"), [EDIT, PAST]),
        (("-m", "attncheck"), [EDIT, GRADIENT, PAST]),
        (("-m", "not attncheck"), []),
        (("--deselect", EDIT), [GRADIENT, PAST]),
        (("--strict-markers",), [EDIT, GRADIENT, PAST]),
    ],
)
def test_selection(run: Runner, args: tuple[str, ...], expected: list[str]) -> None:
    assert ids_of(run(*LEAKY, *args, "--collect-only", "-q")) == expected


def test_the_count_of_collected_items(run: Runner) -> None:
    run(*LEAKY).stdout.fnmatch_lines(["collected 3 items"])
    run(*LEAKY, "-k", "past").stdout.fnmatch_lines(["collected 3 items / 2 deselected / 1 selected"])


def test_stop_at_the_first_failure(run: Runner) -> None:
    result = run(*LEAKY, "-x")
    assert result.ret == 1
    result.assert_outcomes(failed=1)


def test_last_failed_and_failed_first(run: Runner) -> None:
    run(*LEAKY)
    assert ids_of(run(*LEAKY, "--lf", "--collect-only", "-q")) == [EDIT, GRADIENT]
    run(PAST)
    run(EDIT)
    assert ids_of(run(*LEAKY, "--ff", "--collect-only", "-q")) == [EDIT, GRADIENT, PAST]


def test_junit_names_the_target_as_the_class(run: Runner, project: Path) -> None:
    run(*LEAKY, "--junitxml=out.xml")
    cases = {c.get("name"): c for c in ElementTree.parse(project / "out.xml").iter("testcase")}
    assert set(cases) == set(NAMES)
    assert {c.get("classname") for c in cases.values()} == {"attncheck:mypkg.Leaky"}
    failure = cases["causal.future-edit"].find("failure")
    assert failure is not None and "Reproduce with:" in (failure.text or "")


def test_the_marker_is_registered_and_on_each_item(run: Runner) -> None:
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.attncheck: *"])


def test_help_names_the_options(run: Runner) -> None:
    result = run("--help")
    result.stdout.fnmatch_lines(["*--target=SPEC*", "*--target-json=FILE*"])
    assert run("--target=mypkg.Sound", "--help").ret == 0


def test_random_order_changes_the_order_alone(pytester: pytest.Pytester, project: Path) -> None:
    """And not the order of the report."""
    orders = set()
    args = ("-p", "attncheck_pytest", *LEAKY, "-v", "--target-json=r.json")
    for seed in "123":
        result = pytester.runpytest_inprocess(f"--randomly-seed={seed}", *args)
        result.assert_outcomes(failed=2, passed=1)
        assert [r["check"] for r in json.loads((project / "r.json").read_text())["targets"][0]["results"]] == [*NAMES]
        orders.add(tuple(line.split()[0] for line in result.outlines if "::" in line and "%" in line))
    assert len(orders) > 1


def test_coverage_of_the_target(spawn: Runner) -> None:
    result = spawn("--target=mypkg.Sound", "--target-checks=causal.future-edit", "--cov=mypkg")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["mypkg.py *%"])
