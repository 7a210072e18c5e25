"""What cannot be built, and what the error says."""

import re

import pytest

from attncheck_reference import DotProductAttention, MultiHeadAttention, pattern


def says(text):
    return pytest.raises(ValueError, match=f"^{re.escape(text)}")


@pytest.mark.parametrize("make", [DotProductAttention, lambda *a: MultiHeadAttention(12, *a)], ids=["kernel", "module"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(0, None), (-2, None), (0, 1), (4, 0), (4, -1), (4, 3), (2, 4)])
def test_heads(make, heads, kv_heads):
    groups = heads if kv_heads is None else kv_heads
    with says(f"heads={heads}, kv_heads={groups}: expected both >= 1, heads a multiple of kv_heads"):
        make(heads, kv_heads)


@pytest.mark.parametrize("width", [0, -4])
def test_width_below_one(width):
    with says(f"width={width}: expected at least 1"):
        MultiHeadAttention(width, 2)


def test_width_not_divisible_by_heads():
    with says("width=10 is not divisible by heads=4; give head_width="):
        MultiHeadAttention(10, 4)
    assert MultiHeadAttention(10, 4, head_width=3).q.out_features == 12


@pytest.mark.parametrize("make", [DotProductAttention, lambda *a, **k: MultiHeadAttention(4, *a, **k)])
def test_dead_rows(make):
    with says("dead_rows='zeros': expected one of refuse, nan, zero, uniform"):
        make(2, dead_rows="zeros")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: DotProductAttention(2, **k),
        lambda **k: MultiHeadAttention(4, 2, **k),
        lambda **k: pattern(3, 3, **k),
    ],
    ids=["kernel", "module", "pattern"],
)
def test_corner(make, causal):
    with says("corner='upper-left': expected one of top-left, bottom-right"):
        make(causal=causal, corner="upper-left")


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, float("nan")])
@pytest.mark.parametrize("make", [DotProductAttention, lambda *a, **k: MultiHeadAttention(4, *a, **k)])
def test_dropout(make, dropout):
    with says(f"dropout={dropout}: expected 0 <= dropout < 1"):
        make(2, dropout=dropout)
