"""softcap=: scaled scores become c * tanh(score / c), before anything is added or hidden."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention


def weights_of(scores, **init):
    """Weights of one query whose raw scores are given, unscaled."""
    q, k = torch.ones(1, 1, 1, 1).double(), torch.tensor(scores).double().view(1, 1, -1, 1)
    bias, allowed = init.pop("bias", None), init.pop("allowed", None)
    m = DotProductAttention(1, **{"scale": 1.0, **init})
    return m(q, k, k, allowed, bias, need_weights=True)[1].flatten()


def odds(weights):
    return (weights[1] / weights[0]).item()


@pytest.mark.parametrize("score", [0.5, 2.0, -3.0, 40.0])
@pytest.mark.parametrize("c", [0.5, 2.0, 30.0])
def test_the_ratio_of_two_weights(c, score):
    assert odds(weights_of([0.0, score], softcap=c)) == pytest.approx(math.exp(c * math.tanh(score / c)), rel=1e-12)


def test_it_comes_after_the_scale():
    assert odds(weights_of([0.0, 6.0], softcap=2.0, scale=0.5)) == pytest.approx(math.exp(2 * math.tanh(1.5)))


def test_a_bias_is_added_to_the_capped_scores():
    bias = torch.tensor([[0.0, 5.0]]).double()
    assert odds(weights_of([0.0, 6.0], softcap=2.0, bias=bias)) == pytest.approx(math.exp(2 * math.tanh(3.0) + 5))


def test_a_hidden_key_is_hidden_and_not_capped():
    weights = weights_of([0.0, 1.0, 9.0], softcap=2.0, allowed=torch.tensor([[True, True, False]]))
    assert weights[2] == 0
    assert odds(weights) == pytest.approx(math.exp(2 * math.tanh(0.5)))
    assert weights_of([0.0, 9.0], softcap=2.0, causal=True).tolist() == [1, 0]


def test_a_small_cap_makes_all_keys_equal_and_a_large_one_does_nothing():
    assert_close(weights_of([3.0, -4.0, 9.0], softcap=1e-9), torch.full((3,), 1 / 3).double())
    assert_close(weights_of([3.0, -4.0, 9.0], softcap=1e9), weights_of([3.0, -4.0, 9.0]))


def test_the_module_has_it_too():
    plain, capped = MultiHeadAttention(8, 2), MultiHeadAttention(8, 2, softcap=0.25)
    capped.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, 8) * 3
    _, weights = capped(x, need_weights=True)
    q, k = (plain.split(m(x), 2) for m in (plain.q, plain.k))
    assert_close(weights, (0.25 * torch.tanh(q @ k.mT / 2 / 0.25)).softmax(-1))
    assert not torch.allclose(weights, plain(x, need_weights=True)[1])
