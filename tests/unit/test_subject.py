"""What a subject knows: its own pattern, what it reads of an adapter, and copies that leave the original alone."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attncheck.subject import MASK_AXES, MODES, Case, Convention, Subject, subject_of
from attncheck_reference.masks import pattern as pattern_of_the_reference

CASE = Case("self", 2, 3, 3)


def rows(subject: Subject, T: int, S: int) -> list[str]:
    return ["".join("1" if x else "." for x in row) for row in subject.pattern(T, S).tolist()]


def told(kind: str = "attention", **declared: str) -> Subject:
    return subject_of(SimpleNamespace(width=4, heads=2), kind, declared)


PATTERNS: list[tuple[dict[str, str], tuple[int, int], str]] = [
    ({}, (2, 3), "111 111"),
    ({"causal": "no"}, (2, 3), "111 111"),
    ({"causal": "top-left"}, (3, 3), "1.. 11. 111"),
    ({"causal": "top-left"}, (2, 4), "1... 11.."),
    ({"causal": "top-left"}, (4, 2), "1. 11 11 11"),
    ({"causal": "bottom-right"}, (3, 3), "1.. 11. 111"),
    ({"causal": "bottom-right"}, (2, 4), "111. 1111"),
    ({"causal": "bottom-right"}, (4, 2), ".. .. 1. 11"),
    ({"causal": "prefix:2"}, (4, 4), "11.. 11.. 111. 1111"),
    ({"causal": "prefix:0"}, (2, 2), "1. 11"),
    ({"causal": "top-left", "window": "2"}, (4, 4), "1... 11.. .11. ..11"),
    ({"causal": "top-left", "window": "1"}, (2, 2), "1. .1"),
    ({"causal": "bottom-right", "window": "2"}, (2, 4), ".11. ..11"),
    ({"window": "2"}, (3, 3), "1.. 11. .11"),
    ({"window": "-1:1"}, (4, 4), "11.. 111. .111 ..11"),
    ({"window": "0:1"}, (3, 3), "11. .11 ..1"),
    ({"window": "-2:1", "causal": "top-left"}, (4, 4), "1... 11.. 111. .111"),
]


@pytest.mark.parametrize(("declared", "sizes", "want"), PATTERNS, ids=str)
def test_the_pattern_as_a_matrix(declared: dict[str, str], sizes: tuple[int, int], want: str) -> None:
    assert rows(told(**declared), *sizes) == want.split()


@pytest.mark.parametrize("causal", ["no", "top-left", "bottom-right"])
@pytest.mark.parametrize("window", ["none", "2", "-2:1"])
def test_the_pattern_is_that_of_the_reference(causal: str, window: str) -> None:
    span = {"none": None, "2": (-1, 0), "-2:1": (-2, 1)}[window]
    for T, S in itertools.product((1, 2, 4, 5), repeat=2):
        corner = "top-left" if causal == "no" else causal
        want = pattern_of_the_reference(T, S, causal != "no", corner, span)
        want = torch.ones(T, S, dtype=torch.bool) if want is None else want
        assert torch.equal(told(causal=causal, window=window).pattern(T, S), want), (T, S)


def test_the_causality_of_a_kernel_is_its_own_unless_a_flag_asks_for_it() -> None:
    assert rows(told("kernel", causal="top-left"), 2, 2) == ["1.", "11"]
    flagged = SimpleNamespace(width=4, options={"mask": ("bool", "flag")})
    assert rows(subject_of(flagged, "kernel", {"causal": "top-left"}), 2, 2) == ["11", "11"]


def test_what_is_visible_is_the_pattern_and_the_mask() -> None:
    mask = torch.tensor([[True, True, False], [False, True, True], [True, False, True]])
    seen = told(causal="top-left").visible(mask, CASE)
    assert seen.shape == (2, 2, 3, 3)
    assert seen[1, 1].long().tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_defaults_are_read_in_one_place() -> None:
    plain = told()
    assert (plain.widths, plain.heads, plain.kv_heads, plain.masks) == ((4, 4, 4), 2, 2, MASK_AXES)
    assert plain.sources == ("self", "clones", "memory", "separate")
    assert plain.modes == MODES[:2]
    assert subject_of(SimpleNamespace(module=nn.Linear(2, 2), width=2), "attention").modes == MODES
    apart = subject_of(SimpleNamespace(widths=(4, 6, 6), masks=()), "attention")
    assert (apart.sources, apart.heads) == (("memory", "separate"), 1)
    assert subject_of(SimpleNamespace(widths=(4, 6, 8)), "attention").sources == ("separate",)


def test_a_declaration_wins_over_the_adapter() -> None:
    adapter = SimpleNamespace(width=4, conventions={"mask": "allowed", "causal": Convention("no", "observed")})
    both = subject_of(adapter, "attention", {"mask": "blocked"})
    assert both.conventions["mask"] == Convention("blocked", "declared")
    assert both.conventions["causal"].source == "observed"


def test_what_a_target_lacks() -> None:
    bare = subject_of(SimpleNamespace(width=4, masks=(), conventions={"weights": "none"}), "attention")
    assert [bare.lacks(need) is None for need in ("mask", "causality", "weights")] == [False] * 3
    assert [told(causal="top-left").lacks(need) for need in ("mask", "causality", "weights")] == [None] * 3


@pytest.mark.parametrize("kind", ["attention", "kernel"])
def test_inputs_have_the_shapes_of_the_kind(kind: str) -> None:
    adapter = SimpleNamespace(widths=(4, 6, 8), heads=4, kv_heads=2)
    shapes = [tuple(x.shape) for x in subject_of(adapter, kind).draw(Case("separate", 3, 5, 7)).tensors()]
    attention = [(3, 5, 4), (3, 7, 6), (3, 7, 8)]
    assert shapes == (attention if kind == "attention" else [(3, 4, 5, 4), (3, 2, 7, 6), (3, 2, 7, 8)])
