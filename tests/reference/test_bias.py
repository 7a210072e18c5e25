"""bias=: added to the scaled scores; -inf forbids, and nothing else does."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention


def test_it_is_added_after_scaling():
    """q.k = 0 and ln 3, scaled to 0 and 2 ln 3, with the bias 0 and -ln 3: scores 0 and ln 3."""
    q, k, v = torch.ones(1, 1, 1, 1), torch.tensor([0, math.log(3)]).view(1, 1, 2, 1), torch.tensor([2.0, 6.0])
    bias = torch.tensor([[0, -math.log(3)]])
    output, weights = DotProductAttention(1, scale=2.0)(q, k, v.view(1, 1, 2, 1), bias=bias, need_weights=True)
    assert_close(weights.flatten(), torch.tensor([0.25, 0.75]))
    assert_close(output.item(), 5.0)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (5, 1, 1, 4), (1, 2, 1, 4), (5, 2, 3, 4)], ids=str)
def test_weights_change_by_the_exponential_of_the_bias(shape):
    q, k, bias = torch.randn(5, 2, 3, 6).double(), torch.randn(5, 2, 4, 6).double(), torch.randn(shape).double()
    m = DotProductAttention(2)
    _, before = m(q, k, k, need_weights=True)
    _, after = m(q, k, k, bias=bias, need_weights=True)
    changed = before * bias.exp()
    assert_close(after, changed / changed.sum(-1, keepdim=True))


def test_a_constant_bias_changes_nothing():
    q = torch.randn(2, 2, 3, 6).double()
    m = DotProductAttention(2)
    assert_close(m(q, q, q, bias=torch.full((3, 3), 2.5).double())[0], m(q, q, q)[0])


@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 1, 5), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str)
def test_0_and_minus_infinity_are_a_bool_mask(shape):
    m = MultiHeadAttention(6, 3)
    query, memory = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    allowed = torch.rand(shape) < 0.5
    allowed[..., 2] = True
    output, weights = m(query, memory, bias=torch.zeros(shape).masked_fill(~allowed, -torch.inf), need_weights=True)
    expected, expected_weights = m(query, memory, allowed=allowed, need_weights=True)
    assert torch.equal(weights > 0, allowed.expand(2, 3, 4, 5))
    assert torch.equal(output, expected)
    assert torch.equal(weights, expected_weights)


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_finite_bias_is_not_a_mask(low):
    """Where all keys are equally low none is hidden: the row is alive, and even."""
    q, k = torch.zeros(1, 1, 2, 3), torch.randn(1, 1, 4, 3)
    _, weights = DotProductAttention(1, dead_rows="refuse")(q, k, k, bias=torch.full((2, 4), low), need_weights=True)
    assert_close(weights, torch.full((1, 1, 2, 4), 0.25))


def test_a_nan_in_the_bias_shows():
    """It does not pass for a key that is hidden."""
    q, bias = torch.randn(1, 1, 2, 3), torch.zeros(2, 2)
    bias[1, 0] = torch.nan
    output, _ = DotProductAttention(1)(q, q, q, bias=bias)
    assert output[0, 0, 0].isfinite().all()
    assert output[0, 0, 1].isnan().all()


def test_gradients_reach_a_bias_and_are_zero_where_it_forbids():
    q, k, v = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 4, 3), torch.randn(1, 1, 4, 3)
    bias = torch.zeros(2, 4).masked_fill(torch.arange(4) == 1, -torch.inf).requires_grad_()
    DotProductAttention(1)(q, k, v, bias=bias)[0].square().sum().backward()
    assert bias.grad.isfinite().all()
    assert (bias.grad[:, [0, 2, 3]] != 0).all()
    assert (bias.grad[:, 1] == 0).all()


def test_the_mask_step_alone_hides_and_so_a_fault_there_breaks_both_forms():
    class Unmasked(DotProductAttention):
        def mask(self, scores_NhTS, allowed):
            return scores_NhTS

    q, bias = torch.randn(1, 1, 3, 4), torch.zeros(3, 3).masked_fill(torch.eye(3).bool(), -torch.inf)
    assert torch.equal(Unmasked(1)(q, q, q, bias=bias)[0], Unmasked(1)(q, q, q, bias == 0)[0])
    assert torch.equal(Unmasked(1)(q, q, q, bias=bias)[0], DotProductAttention(1)(q, q, q)[0])


def test_a_bool_bias_is_refused():
    q = torch.randn(2, 1, 3, 4)
    with pytest.raises(TypeError, match=r"bias.dtype=torch.bool: expected floats.*bools go to allowed="):
        DotProductAttention(1)(q, q, q, bias=torch.ones(3, 3, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(2, 5), (2, 1, 1, 4), (4, 1, 1, 5), (2, 1, 1, 1, 5), (2, 1, 7, 5)], ids=str)
def test_a_bias_that_would_enlarge_the_scores_is_refused(shape):
    q, k = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 5, 4)
    with pytest.raises(ValueError) as error:
        DotProductAttention(1)(q, k, k, bias=torch.zeros(shape))
    assert f"bias.shape={shape}: expected to broadcast to (N,h,T,S)=(1, 1, 1, 5)" in str(error.value)
