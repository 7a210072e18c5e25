"""Covering tables: every combination of the settings of any two (or three) axes occurs, in few rows."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncheck.cases import covering

Axes = tuple[tuple[object, ...], ...]
TABLES: list[Axes] = [
    ((1, 2), "ab", (True, False)),
    ((1, 2, 3, 4), "ab", (True, False), ("x", "y", "z")),
    ((0,), (1, 2, 3), (4,)),
    (tuple(range(12)), tuple(range(4)), (0, 1), (0, 1), (0, 1, 2), (0, 1)),
    ((1, 2, 3),),
]


def missing(axes: Axes, rows: list[tuple[object, ...]], strength: int) -> list[object]:
    """The combinations that no row has, by brute force."""
    return [
        (group, values)
        for group in itertools.combinations(range(len(axes)), min(strength, len(axes)))
        for values in itertools.product(*(axes[i] for i in group))
        if not any(all(row[i] == v for i, v in zip(group, values, strict=True)) for row in rows)
    ]


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize("axes", TABLES, ids=lambda axes: "x".join(str(len(a)) for a in axes))
def test_every_combination_occurs(axes: Axes, strength: int) -> None:
    axes = tuple(tuple(a) for a in axes)
    rows = covering(axes, strength)
    assert missing(axes, rows, strength) == []
    assert all(len(row) == len(axes) and all(v in a for v, a in zip(row, axes, strict=True)) for row in rows)
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(("strength", "most"), [(1, 12), (2, 60), (3, 220)])
def test_rows_are_few(strength: int, most: int) -> None:
    """The whole product has 1152 rows; the least that can do is the product of the longest axes, 12, 48 and 144."""
    rows = covering(TABLES[3], strength)
    assert math.prod(sorted(len(a) for a in TABLES[3])[-strength:]) <= len(rows) <= most


def test_an_axis_without_a_value_leaves_no_row() -> None:
    assert covering(((1, 2), ()), 2) == []


def test_the_table_is_the_same_when_it_is_made_again() -> None:
    first = list(covering(TABLES[3], 2))
    covering.cache_clear()
    assert covering(TABLES[3], 2) == first


AXES = st.lists(st.integers(1, 4).map(lambda n: tuple(range(n))), min_size=1, max_size=5).map(tuple)


@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(axes=AXES, strength=st.integers(1, 3))
def test_any_axes_are_covered(axes: Axes, strength: int) -> None:
    rows = covering(axes, strength)
    assert missing(axes, rows, strength) == []
    assert len(rows) <= math.prod(len(a) for a in axes)
