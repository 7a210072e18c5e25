"""masked=: whether a given mask adds to causality and window, or takes their place."""

import re

import pytest
import torch

from attncheck_reference import DotProductAttention, MultiHeadAttention

MASK = torch.tensor([[True, False, True], [False, True, True], [True, True, False]])
BIAS = torch.tensor([[0.0, -torch.inf, 1.0], [2.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]])


def seen(allowed=None, bias=None, **init):
    x = torch.randn(1, 2, 3, 4)
    _, weights = DotProductAttention(2, causal=True, **init)(x, x, x, allowed, bias, need_weights=True)
    return " ".join("".join("1" if w > 0 else "." for w in row) for row in weights[0, 1])


CASES = [
    ({}, "1.. 11. 111", "1.. 11. 111"),
    ({"allowed": MASK}, "1.. .1. 11.", "1.1 .11 11."),
    ({"bias": BIAS}, "1.. 11. 111", "1.1 11. 111"),
    ({"allowed": MASK, "bias": BIAS}, "1.. .1. 11.", "1.1 .1. 11."),
    ({"window": (-1, 0)}, "1.. 11. .11", "1.. 11. .11"),
    ({"window": (-1, 0), "allowed": MASK}, "1.. .1. .1.", "1.1 .11 11."),
]


@pytest.mark.parametrize(("given", "also", "instead"), CASES, ids=lambda x: " ".join(x) if isinstance(x, dict) else x)
def test_what_is_seen(given, also, instead):
    assert seen(**given) == seen(**given, masked="also") == also
    assert seen(**given, masked="instead") == instead


def test_under_a_mask_it_is_the_attention_without_a_triangle():
    causal, plain = MultiHeadAttention(8, 2, causal=True, masked="instead"), MultiHeadAttention(8, 2)
    plain.load_state_dict(causal.state_dict())
    x, allowed = torch.randn(2, 3, 8), torch.ones(2, 1, 1, 3, dtype=torch.bool)
    assert torch.equal(causal(x, allowed=allowed)[0], plain(x)[0])
    assert not torch.equal(causal(x)[0], plain(x)[0])


def test_a_dead_row_is_one_of_the_mask_alone():
    """The triangle and this mask leave the first query without a key; the mask alone does not."""
    last = torch.tensor([[False, False, True]]).expand(3, 3)
    with pytest.raises(ValueError, match=re.escape("allowed is all False in row [0]:")):
        seen(allowed=last)
    assert seen(allowed=last, masked="instead") == "..1 ..1 ..1"


@pytest.mark.parametrize("make", [DotProductAttention, lambda *a, **k: MultiHeadAttention(4, *a, **k)])
@pytest.mark.parametrize("masked", ["replaced", "", None, True])
def test_another_word_is_refused(make, masked):
    with pytest.raises(ValueError, match=f"^{re.escape(f'masked={masked!r}: expected one of also, instead')}$"):
        make(2, masked=masked)
