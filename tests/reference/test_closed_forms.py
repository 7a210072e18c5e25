"""The kernel against numbers that a person can work out. N=1 and one head unless said otherwise."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention


def rows(*numbers):
    """(1,1,length,width) from one list a position."""
    return torch.tensor(numbers, dtype=torch.float64)[None, None]


def test_scores_0_and_ln_3_give_quarters_and_5():
    q, k, v = rows([1.0]), rows([0.0], [math.log(3)]), rows([2.0], [6.0])
    output, weights = DotProductAttention(1)(q, k, v, need_weights=True)
    assert_close(weights, rows([0.25, 0.75]))
    assert_close(output, rows([5.0]))


def test_each_head_has_its_own_scores_and_values():
    q = torch.ones(1, 2, 1, 1)
    k = torch.tensor([[0, math.log(3)], [math.log(3), 0]])[None, :, :, None]
    v = torch.tensor([[2.0, 6.0], [2.0, 6.0]])[None, :, :, None]
    output, _ = DotProductAttention(2)(q, k, v)
    assert_close(output.flatten(), torch.tensor([5.0, 3.0]))


def test_constant_keys_give_the_mean_of_the_values():
    q, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 7)
    k = torch.randn(2, 3, 1, 6).expand(-1, -1, 5, -1)
    output, weights = DotProductAttention(3)(q, k, v, need_weights=True)
    assert_close(weights, torch.full((2, 3, 4, 5), 0.2))
    assert_close(output, v.mean(2, keepdim=True).expand(-1, -1, 4, -1))


@pytest.mark.parametrize("key", range(5))
def test_one_allowed_key_gives_exactly_its_value(key):
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    output, weights = DotProductAttention(3)(q, k, v, (torch.arange(5) == key).expand(4, 5), need_weights=True)
    assert torch.equal(output, v[:, :, key : key + 1].expand(-1, -1, 4, -1))
    assert torch.equal(weights, (torch.arange(5) == key).float().expand(2, 3, 4, 5))


def test_the_scores_are_divided_by_the_root_of_the_head_width():
    q, k = rows([1.0] * 4), rows([0.0] * 4, [math.log(3)] * 4)  # q.k = 0 and 4 ln 3, over sqrt(4): 2 ln 3
    _, weights = DotProductAttention(1)(q, k, k, need_weights=True)
    assert_close(weights, rows([0.1, 0.9]))


@pytest.mark.parametrize(("scale", "ratio"), [(0.25, 3.0), (1.0, 81.0), (0.0, 1.0), (-0.25, 1 / 3)])
def test_scale_takes_the_place_of_the_root(scale, ratio):
    q, k = rows([1.0] * 4), rows([0.0] * 4, [math.log(3)] * 4)
    _, weights = DotProductAttention(1, scale=scale)(q, k, k, need_weights=True)
    assert_close(weights, rows([1 / (1 + ratio), ratio / (1 + ratio)]))


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_ratio_of_two_weights_is_the_exponential_of_their_scores_difference(d):
    q, k = torch.randn(2, 2, 3, d).double(), torch.randn(2, 2, 2, d).double()
    _, weights = DotProductAttention(2)(q, k, k, need_weights=True)
    difference = (q * (k[:, :, 1:] - k[:, :, :1])).sum(-1) / math.sqrt(d)
    assert_close(weights[..., 1] / weights[..., 0], difference.exp())


def test_weights_are_returned_only_when_asked_for():
    q = torch.randn(1, 2, 3, 4)
    output, weights = DotProductAttention(2)(q, q, q)
    again, asked = DotProductAttention(2)(q, q, q, need_weights=True)
    assert weights is None
    assert asked.shape == (1, 2, 3, 3)
    assert torch.equal(output, again)


def test_grouped_heads_read_blocks_of_query_heads():
    """h=6, g=2: query heads 0 1 2 read the first key/value head, 3 4 5 the second."""
    v = torch.tensor([10.0, 20.0])[None, :, None, None]
    output, _ = DotProductAttention(6, 2)(torch.randn(1, 6, 1, 3), torch.randn(1, 2, 1, 3), v)
    assert output.flatten().tolist() == [10, 10, 10, 20, 20, 20]
