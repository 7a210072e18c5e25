"""What the record of a check does to its table: modes, sizes, strength, and sizes that make no sense for it."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from attncheck.cases import cases, drawn_cases, plainer, situation, sizes_of
from attncheck.registry import Check
from attncheck.subject import MODES, Case, Subject, subject_of

SOURCES = ("self", "clones", "memory", "separate")


def subject(**told: Any) -> Subject:
    adapter = {"width": 24, "heads": 4, "sources": SOURCES, "modes": MODES, **told}
    return subject_of(SimpleNamespace(**adapter), "attention")


def check(**record: Any) -> Check:
    return Check("a.b", lambda subject, case, oracle: None, ("attention",), ("f",), **record)


def size(case: Case) -> tuple[int, int, int]:
    return case.N, case.T, case.S


PROFILES = [("quick", 0), ("default", 0), ("deep", 0), ("default", 1)]


@pytest.mark.parametrize(("profile", "config"), PROFILES)
@pytest.mark.parametrize("modes", [("train",), ("eval no-grad",), ("eval", "train")])
def test_only_the_modes_of_the_check(modes: tuple[str, ...], profile: str, config: int) -> None:
    assert {c.mode for c in cases(check(modes=modes), subject(), profile, config)} == set(modes)


def test_a_target_without_the_modes_of_the_check_has_no_case() -> None:
    assert cases(check(modes=("train",)), subject(modes=MODES[:2]), "default") == []


def test_the_plainest_mode_is_one_of_the_check() -> None:
    case = Case("self", 2, 3, 3, "train no-grad")
    assert plainer(check(modes=MODES[2:]), subject())[0](case) == case.but(mode="train")
    assert plainer(check(), subject())[0](case) == case.but(mode="eval")


@pytest.mark.parametrize("count", [1, 2, 4, 99])
def test_no_more_sizes_than_the_check_asks_for(count: int) -> None:
    walked = cases(check(sizes=count), subject(), "default")
    for sources in SOURCES:
        want = {size(situation(sources, n)) for n in sizes_of(subject())[:count]}
        assert {size(c) for c in walked if c.sources == sources} == want


def test_sizes_are_counted_among_those_that_make_sense() -> None:
    single = check(sizes=1, where=lambda case: case.N == 1)
    assert {size(c) for c in cases(single, subject(), "default")} == {(1, 6, 6), (1, 4, 6)}


def axes_of(case: Case) -> tuple[Any, ...]:
    """Its settings without the size."""
    return case.sources, case.mode, case.strided, case["w"]


@pytest.mark.parametrize(("record", "profile", "strength"), [
    ({"strength": 1}, "default", 1), ({}, "default", 2), ({"strength": 1}, "deep", 2),
    ({"strength": 1, "profile": "deep"}, "deep", 1),
])  # fmt: skip
def test_every_combination_of_as_many_settings_as_the_strength(
    record: dict[str, Any], profile: str, strength: int
) -> None:
    walked = cases(check(axes={"w": (1, 2, 3)}, **record), subject(), profile)
    values = (SOURCES, MODES, (False, True), (1, 2, 3))
    for left, right in itertools.combinations(range(4), 2):
        pairs = {(axes_of(c)[left], axes_of(c)[right]) for c in walked}
        every = set(itertools.product(values[left], values[right]))
        assert pairs == every if strength == 2 else {p[0] for p in pairs} == set(values[left])
    assert len(walked) == 6 if strength == 1 else len(walked) >= 24


def test_a_row_whose_size_makes_no_sense_gets_another_and_keeps_the_rest() -> None:
    """One token: fine with a memory, and without one not a case of this check."""
    record: dict[str, Any] = {"axes": {"w": (1, 2, 3)}}
    every = cases(check(**record), subject(), "default")
    fitting = cases(check(**record, where=lambda case: case.S > 2), subject(), "default")
    assert [axes_of(c) for c in fitting] == [axes_of(c) for c in every]
    first = situation("self", sizes_of(subject())[0])
    moved = [size(a) == size(first) for a, b in zip(fitting, every, strict=True) if size(a) != size(b)]
    assert len(moved) == sum(c.S <= 2 for c in every) > 0
    assert all(moved)
    assert (2, 1, 5) in {size(c) for c in fitting}


def test_sources_for_which_no_size_makes_sense_are_left_out() -> None:
    across = cases(check(where=lambda case: case.T != case.S), subject(), "default")
    assert {c.sources for c in across} == {"memory", "separate"}


@pytest.mark.parametrize("seed", range(3))
def test_drawn_cases_have_the_modes_of_the_check(seed: int) -> None:
    from hypothesis import given, settings

    seen = set()
    strategy = drawn_cases(check(modes=("train", "train no-grad")), subject())
    settings(max_examples=20, database=None, derandomize=True)(given(strategy)(lambda c: seen.add(c.mode)))()
    assert seen == {"train", "train no-grad"}
