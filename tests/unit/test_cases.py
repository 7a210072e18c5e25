"""The situations that a check walks: sizes, seeds, profiles, and smaller cases of a finding."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncheck.cases import cases, drawn_cases, plainer, reseeded, situation, sizes_of, smaller
from attncheck.registry import Check
from attncheck.subject import MODES, Case, Subject, subject_of

SETS = [("self",), ("self", "clones"), ("memory",), ("separate",), ("memory", "separate"),
        ("self", "memory"), ("self", "clones", "memory", "separate")]  # fmt: skip


def subject(heads: int = 4, sources: tuple[str, ...] = SETS[-1], **told: Any) -> Subject:
    adapter = SimpleNamespace(width=24, heads=heads, sources=sources, modes=MODES, **told)
    return subject_of(adapter, "attention")


def situations_of(subject: Subject, few: bool = False) -> list[tuple[str, int, int, int]]:
    """(sources, N, T, S) of each way of calling it, at each size."""
    walked = [situation(s, size) for size in sizes_of(subject, few) for s in subject.sources]
    return [(c.sources, c.N, c.T, c.S) for c in walked]


def check(where: Any = None, **axes: Any) -> Check:
    return Check("a.b", lambda subject, case, oracle: None, ("attention",), ("f",), axes=axes, where=where)


@pytest.mark.parametrize("sources", SETS, ids="-".join)
def test_sizes_have_the_coincidences(sources: tuple[str, ...]) -> None:
    rows = situations_of(subject(sources=sources))
    assert {s for s, *_ in rows} == set(sources)
    for name in ("N = h", "N = 1", "T = 1", "T = S"):
        assert any(eval(name.replace("=", "=="), {"N": N, "T": T, "S": S, "h": 4}) for _, N, T, S in rows), name
    assert all(T == S for s, _, T, S in rows if s in ("self", "clones"))
    if {"memory", "separate"} & set(sources):
        assert any(T > S for _, _, T, S in rows)
        assert any(1 < T < S for _, _, T, S in rows)


@pytest.mark.parametrize("heads", range(1, 9))
def test_the_first_sizes_are_pairwise_different(heads: int) -> None:
    for sources in SETS:
        _, N, T, S = situations_of(subject(heads, sources), few=True)[0]
        sizes = [N, T, heads, 24] if sources[0] in ("self", "clones") else [N, T, S, heads, 24]
        assert len(set(sizes)) == len(sizes), sizes


def test_a_table_meets_every_pair_of_settings() -> None:
    walked = cases(check(mask=("none", "TS"), size=(1, 2)), subject(options={"weights": (False, True)}), "default")
    pairs = {(c.mode, c.options["weights"], c["mask"], c["size"], c.strided) for c in walked}
    assert {(p[0], p[2]) for p in pairs} == {(m, x) for m in MODES for x in ("none", "TS")}
    assert {(p[1], p[4]) for p in pairs} == {(a, b) for a in (False, True) for b in (False, True)}
    assert {(c.sources, c.N, c.T, c.S) for c in walked} == set(ALL)
    assert {(c.N, c["size"]) for c in walked} == {(N, z) for _, N, _, _ in ALL for z in (1, 2)}
    assert {(c.sources, c["size"]) for c in walked} == {(s, z) for s, *_ in ALL for z in (1, 2)}


ALL = situations_of(subject())


def test_quick_is_a_smaller_table_and_deep_a_larger() -> None:
    sizes = [len(cases(check(), subject(), profile)) for profile in ("quick", "default", "deep")]
    assert sizes[0] < sizes[1] < sizes[2]
    assert {(c.sources, c.N, c.T, c.S) for c in cases(check(), subject(), "quick")} < set(ALL)


def test_a_second_configuration_meets_every_setting_once() -> None:
    walked = cases(check(size=(1, 2, 3)), subject(), "default", config=1)
    assert {c.mode for c in walked} >= set(MODES[:3])
    assert {c["size"] for c in walked} == {1, 2, 3}
    assert {c.config for c in walked} == {1}
    assert len(walked) < len(cases(check(size=(1, 2, 3)), subject(), "quick"))


def test_where_and_the_masks_of_the_target_narrow_the_table() -> None:
    only = check(where=lambda case: case.T > 1, mask=("none", "TS", "1hTS"))
    walked = cases(only, subject(masks=("TS",)), "default")
    assert {c["mask"] for c in walked} == {"none", "TS"}
    assert all(c.T > 1 for c in walked)
    assert cases(check(where=lambda case: False), subject(), "default") == []


def test_seeds_are_the_case_s_own() -> None:
    walked = cases(check(size=(1, 2)), subject(), "default")
    assert len({c.seed for c in walked}) == len({str(c) for c in walked})
    other = cases(check(size=(1, 2)), subject(), "default", seed=1)
    assert all(a.seed != b.seed and str(a) == str(b) for a, b in zip(walked, other, strict=True))


def test_seeds_are_the_same_in_every_process() -> None:
    code = "from attncheck.cases import *; print(reseeded(Case('self', 2, 3, 3, options={'a': 1}), 5).seed)"
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    printed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert int(printed) == reseeded(Case("self", 2, 3, 3, options={"a": 1}), 5).seed


@pytest.mark.parametrize("sources", SETS[-1])
def test_smaller_cases_are_smaller_smallest_first(sources: str) -> None:
    case = Case(sources, 2, 7, 7 if sources in ("self", "clones") else 9, "train", True, {"w": 1}, {"mask": "TS"})
    less = list(smaller(case))
    sizes = [(c.N, c.T, c.S) for c in less]
    assert sizes[0] == (1, 1, 1)
    assert (2, 7, case.S) not in sizes
    assert all(N <= 2 and T <= 7 and S <= case.S for N, T, S in sizes)
    volumes = [N * T * S for N, T, S in sizes]
    assert volumes == sorted(volumes)
    assert len(set(sizes)) == len(sizes)
    assert all(c.but(N=2, T=7, S=case.S, seed=0) == case for c in less)
    assert all(c.T == c.S for c in less) == (sources in ("self", "clones"))


def test_nothing_is_smaller_than_one() -> None:
    assert list(smaller(Case("self", 1, 1, 1))) == []


def test_plainer_cases_have_one_setting_at_its_first_value() -> None:
    case = Case("self", 2, 3, 3, "train", True, {"w": 2}, {"size": 4, "mask": "TS"})
    changes = plainer(check(size=(3, 4), mask=("none", "TS")), subject(options={"w": (1, 2)}))
    plain = [change(case) for change in changes]
    assert plain == [case.but(mode="eval"), case.but(strided=False), case.but(options={"w": 1}),
                     case.but(axes={"size": 3, "mask": "TS"})]  # fmt: skip


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(data=st.data(), sources=st.sampled_from(SETS))
def test_drawn_cases_keep_to_the_target_and_the_check(data: st.DataObject, sources: tuple[str, ...]) -> None:
    only = check(where=lambda case: case.T > 1, size=(1, 2))
    case = data.draw(drawn_cases(only, subject(sources=sources)))
    assert case.sources in sources
    assert case.T > 1
    assert all(1 <= n <= 8 for n in (case.N, case.T, case.S))
    assert case.T == case.S or case.sources in ("memory", "separate")
    assert case == reseeded(case, 0)
