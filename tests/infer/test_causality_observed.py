"""The built-in pattern of a class that nobody has described: causality, its corner, a window, a prefix."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor


def offset(T: int, S: int) -> Tensor:
    return torch.arange(S) - torch.arange(T)[:, None]


def hide(pattern: Callable[[int, int], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda scores: scores.masked_fill(~pattern(*scores.shape[-2:]), -torch.inf)


PATTERNS: dict[tuple[str, str | None], Callable[[int, int], Tensor]] = {
    ("no", None): lambda T, S: offset(T, S) < 99,
    ("top-left", None): lambda T, S: offset(T, S) <= 0,
    ("top-left", "3"): lambda T, S: (offset(T, S) <= 0) & (offset(T, S) > -3),
    ("no", "-2:1"): lambda T, S: (offset(T, S) >= -2) & (offset(T, S) <= 1),
    ("no", "-1:1"): lambda T, S: offset(T, S).abs() <= 1,
    ("prefix:3", None): lambda T, S: (offset(T, S) <= 0) | (torch.arange(S) < 3),
}


@pytest.mark.parametrize(("causal", "window"), PATTERNS)
def test_built_in_patterns(causal: str, window: str | None, core: Any, prepared: Any) -> None:
    class A(core):
        def forward(self, x: Tensor) -> Tensor:
            return self.core(x, x, hide(PATTERNS[causal, window]))[0]

    target = prepared(A)
    told = target.conventions.get("window")
    assert (target.conventions["causal"].value, None if told is None else told.value) == (causal, window)
    subject = target.subjects[0]
    assert torch.equal(subject.pattern(7, 7), PATTERNS[causal, window](7, 7).expand(7, 7))


@pytest.mark.parametrize("corner", ["top-left", "bottom-right"])
def test_the_corner_shows_where_lengths_differ(corner: str, core: Any, prepared: Any) -> None:
    shift = 0 if corner == "top-left" else 1

    class A(core):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return self.core(query, key, hide(lambda T, S: offset(T, S) <= shift * (S - T)))[0]

    assert prepared(A).conventions["causal"].value == corner


def test_an_illegal_pattern_takes_the_nearest_name_and_says_so(core: Any, prepared: Any) -> None:
    class A(core):
        def forward(self, x: Tensor) -> Tensor:
            return self.core(x, x, hide(lambda T, S: offset(T, S) <= 1))[0]

    told = prepared(A).conventions["causal"]
    assert told.value == "top-left"
    assert "no legal pattern fits" in told.evidence


NAMED = [("CausalAttention", True), ("MaskedAttention", True), ("NonCausalAttention", False), ("Attention", False)]


@pytest.mark.parametrize(("name", "declares"), NAMED)
def test_a_name_that_promises_causality_declares_it(name: str, declares: bool, core: Any, prepared: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.core(x, x)[0]

    told = prepared(type(name, (core,), {"forward": forward})).conventions["causal"]
    assert (told.value, told.source) == (("top-left", "declared") if declares else ("no", "observed"))
