"""What a subject says that it has: its pattern under masks, a bias, and what a check may need."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from attncheck.subject import Case, Subject, pattern_of, subject_of

CASE = Case("self", 2, 3, 3)
MASK = torch.tensor([[True, True, False], [False, True, True], [True, False, True]])


def told(declare: dict[str, str] | None = None, **adapter: Any) -> Subject:
    return subject_of(SimpleNamespace(**{"width": 4, "heads": 2, **adapter}), "attention", declare or {})


def rows(mask: torch.Tensor) -> str:
    return " ".join("".join("1" if x else "." for x in row) for row in mask.tolist())


PATTERNS = [
    ("no", "none", (2, 3), "111 111"),
    ("top-left", "none", (2, 3), "1.. 11."),
    ("bottom-right", "none", (2, 3), "11. 111"),
    ("prefix:1", "none", (3, 3), "1.. 11. 111"),
    ("prefix:2", "none", (2, 4), "11.. 11.."),
    ("prefix:9", "none", (2, 3), "111 111"),
    ("top-left", "9", (3, 3), "1.. 11. 111"),
    ("prefix:3", "-1:1", (4, 4), "11.. 111. .11. ..11"),
    ("bottom-right", "-1:1", (2, 4), ".11. ..11"),
    ("no", "1:2", (3, 3), ".11 ..1 ..."),
]


@pytest.mark.parametrize(("causal", "window", "sizes", "want"), PATTERNS)
def test_a_pattern_as_a_matrix(causal: str, window: str, sizes: tuple[int, int], want: str) -> None:
    assert rows(pattern_of(causal, window, *sizes)) == want


def test_a_pattern_is_made_once_and_nobody_writes_into_it() -> None:
    kept = pattern_of("top-left", "none", 3, 3)
    assert told({"causal": "top-left"}).pattern(3, 3) is kept
    told({"causal": "top-left"}).visible(~MASK, CASE)
    assert rows(kept) == "1.. 11. 111"
    assert pattern_of("top-left", "2", 3, 3) is not kept


def test_causality_that_is_a_flag_s_to_ask_for_is_not_built_in() -> None:
    flagged = told({"causal": "bottom-right"}, options={"mask": ("bool", "flag")})
    assert (flagged.causality, rows(flagged.pattern(2, 3))) == ("no", "111 111")
    plain = told({"causal": "bottom-right"}, options={"mask": ("bool",)})
    assert (plain.causality, rows(plain.pattern(2, 3))) == ("bottom-right", "11. 111")


def test_a_mask_takes_the_place_of_the_pattern_where_that_is_said() -> None:
    replaced = told({"causal": "top-left", "causal_under_mask": "replaced"})
    assert rows(replaced.visible(MASK, CASE)[1, 1]) == "11. .11 1.1"
    assert rows(replaced.visible(None, CASE)[1, 1]) == "1.. 11. 111"
    assert rows(told({"causal": "top-left"}).visible(MASK, CASE)[1, 1]) == "1.. .1. 1.1"


def test_of_a_float_mask_only_minus_infinity_blocks() -> None:
    floats = torch.tensor([[0.0, -torch.inf, 5.0], [-1e9, 0.0, -torch.inf], [-torch.inf, -3.0, 0.0]])
    assert rows(told().visible(floats, CASE)[0, 0]) == "1.1 11. .11"
    assert rows(told({"causal": "top-left"}).visible(floats, CASE)[0, 0]) == "1.. 11. .11"


def test_what_is_visible_has_all_four_axes() -> None:
    by_sample = torch.tensor([[True, False, True], [True, True, False]])[:, None, None]
    seen = told().visible(by_sample, CASE)
    assert seen.shape == (2, 2, 3, 3)
    assert [rows(x) for x in seen[:, 1]] == ["1.1 1.1 1.1", "11. 11. 11."]


BIASES = [
    ({}, {}, False),
    ({}, {"options": {"mask": ("bool", "additive")}}, True),
    ({"mask": "additive"}, {}, True),
    ({"mask": "additive"}, {"masks": ("N11S", "N1TS")}, False),
    ({"mask": "allowed"}, {"options": {"mask": ("bool",)}}, False),
    ({"mask": "additive"}, {"takes_bias": False}, False),
    ({"mask": "allowed"}, {"takes_bias": True}, True),
]


@pytest.mark.parametrize(("declare", "adapter", "want"), BIASES, ids=str)
def test_who_takes_a_bias(declare: dict[str, str], adapter: dict[str, Any], want: bool) -> None:
    subject = told(declare, **adapter)
    assert subject.takes_bias is want
    assert subject.lacks("bias") == (None if want else "the target takes no float mask that is added to the scores")


NEEDS: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("window", {}, {}, "has no window"),
    ("window", {"window": "none"}, {}, "has no window"),
    ("window", {"window": "2"}, {}, ""),
    ("memory", {}, {"sources": ("self", "clones")}, "takes no memory"),
    ("memory", {}, {"sources": ("self", "memory")}, ""),
    ("memory", {}, {"sources": ("separate",)}, ""),
    ("order", {}, {}, ""),
    ("order", {"positions": "none"}, {}, ""),
    ("order", {"positions": "relative"}, {}, "has positions: relative"),
    ("positions", {}, {}, "has no positions"),
    ("positions", {"positions": "none"}, {}, "has no positions"),
    ("positions", {"positions": "absolute"}, {}, ""),
    ("module", {}, {}, "is no nn.Module"),
    ("module", {}, {"module": "a text"}, "is no nn.Module"),
    ("module", {}, {"module": nn.Linear(2, 2)}, ""),
    ("causality", {}, {"masks": ("N1TS",)}, "is not causal and takes no (T,S) mask"),
    ("causality", {"causal": "prefix:2"}, {"masks": ()}, ""),
]


@pytest.mark.parametrize(("need", "declare", "adapter", "why"), NEEDS, ids=str)
def test_what_a_check_needs(need: str, declare: dict[str, str], adapter: dict[str, Any], why: str) -> None:
    assert told(declare, **adapter).lacks(need) == (f"the target {why}" if why else None)
