"""Causality and windows as literal matrices: row = query, column = key, 1 = may attend."""

import pytest
import torch

from attncheck_reference import DotProductAttention, pattern

CAUSAL = {
    ("top-left", 3, 3): ["100", "110", "111"],
    ("bottom-right", 3, 3): ["100", "110", "111"],
    ("top-left", 2, 4): ["1000", "1100"],
    ("bottom-right", 2, 4): ["1110", "1111"],
    ("top-left", 4, 2): ["10", "11", "11", "11"],
    ("bottom-right", 4, 2): ["00", "00", "10", "11"],
    ("top-left", 1, 3): ["100"],
    ("bottom-right", 1, 3): ["111"],
}
WINDOWS = {
    ("top-left", 4, 4, (-1, 0)): ["1000", "1100", "0110", "0011"],
    ("top-left", 4, 4, (-1, 1)): ["1100", "1110", "0111", "0011"],
    ("top-left", 4, 4, (0, 2)): ["1110", "0111", "0011", "0001"],
    ("top-left", 4, 4, (1, 2)): ["0110", "0011", "0001", "0000"],
    ("top-left", 4, 4, (-2, -1)): ["0000", "1000", "1100", "0110"],
    ("top-left", 2, 4, (-1, 1)): ["1100", "1110"],
    ("bottom-right", 2, 4, (-1, 1)): ["0111", "0011"],
    ("top-left", 4, 2, (-1, 1)): ["11", "11", "01", "00"],
    ("bottom-right", 4, 2, (-1, 1)): ["00", "10", "11", "11"],
}
BOTH = {
    ("top-left", 4, 4, (-1, 1)): ["1000", "1100", "0110", "0011"],
    ("bottom-right", 2, 4, (-1, 1)): ["0110", "0011"],
    ("top-left", 2, 4, (-1, 1)): ["1000", "1100"],
}


def text(mask_TS):
    return ["".join(str(int(x)) for x in row) for row in mask_TS]


def seen(T, S, **init):
    """Which weights of the kernel are not 0, and that they are the same in both samples and all heads."""
    q, k = torch.randn(2, 3, T, 4), torch.randn(2, 3, S, 4)
    _, weights = DotProductAttention(3, dead_rows="zero", **init)(q, k, k, need_weights=True)
    assert torch.equal(weights > 0, (weights[:1, :1] > 0).expand_as(weights))
    return text(weights[0, 0] > 0)


@pytest.mark.parametrize(("corner", "T", "S"), CAUSAL)
def test_causal(corner, T, S):
    expected = CAUSAL[corner, T, S]
    mask = pattern(T, S, True, corner)
    assert mask.dtype == torch.bool
    assert text(mask) == expected
    assert seen(T, S, causal=True, corner=corner) == expected


@pytest.mark.parametrize(("corner", "T", "S", "window"), WINDOWS)
def test_window(corner, T, S, window):
    expected = WINDOWS[corner, T, S, window]
    assert text(pattern(T, S, False, corner, window)) == expected
    assert seen(T, S, window=window, corner=corner) == expected


@pytest.mark.parametrize(("corner", "T", "S", "window"), BOTH)
def test_causal_and_window_hide_what_either_hides(corner, T, S, window):
    expected = BOTH[corner, T, S, window]
    assert text(pattern(T, S, True, corner, window)) == expected
    assert seen(T, S, causal=True, window=window, corner=corner) == expected


def test_without_either_there_is_no_mask():
    assert pattern(3, 4) is None
    assert seen(2, 3) == ["111", "111"]


def test_top_left_is_the_default():
    assert text(pattern(2, 4, True)) == CAUSAL["top-left", 2, 4]
    assert seen(2, 4, causal=True) == CAUSAL["top-left", 2, 4]


def test_the_mask_lies_where_it_is_asked_for():
    assert pattern(2, 3, True, device=torch.device("meta")).device.type == "meta"
    assert pattern(2, 3, window=(0, 1), device=torch.device("meta")).device.type == "meta"
