"""The multi-head module with weights set by hand, so that the output is known."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import MultiHeadAttention

LN3 = math.log(3)


def identity(width, heads, **init):
    m = MultiHeadAttention(width, heads, **init).double()
    for layer in (m.q, m.k, m.v, m.o):
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return m


def tokens(*numbers):
    """(1,length,width) from one list a token."""
    return torch.tensor(numbers, dtype=torch.float64)[None]


def test_scores_0_and_ln_3_give_quarters_and_5():
    m = identity(1, 1)
    output, weights = m(tokens([1.0]), tokens([0.0], [LN3]), tokens([2.0], [6.0]), need_weights=True)
    assert_close(weights, tokens([0.25, 0.75])[None])
    assert_close(output, tokens([5.0]))


def test_each_projection_and_each_bias_is_in_its_place():
    m = identity(1, 1)
    with torch.no_grad():
        m.q.weight.fill_(2.0)
        m.q.bias.fill_(-1.0)  # q = 2 * 1 - 1 = 1
        m.k.weight.fill_(LN3)
        m.k.bias.fill_(7.0)  # k = 7 and 7 + ln 3: a constant that softmax does not see
        m.v.weight.fill_(4.0)
        m.v.bias.fill_(2.0)  # v = 4 * 0 + 2 = 2 and 4 * 1 + 2 = 6
        m.o.weight.fill_(10.0)
        m.o.bias.fill_(0.5)  # 10 * 5 + 0.5
    output, _ = m(tokens([1.0]), tokens([0.0], [1.0]))
    assert_close(output, tokens([50.5]))


def test_head_i_is_the_ith_block_of_features():
    """Two heads of width 2. Head 0 sees features 0 and 1, with scores 0 and ln 3; head 1 the reverse."""
    key = math.sqrt(2) * LN3
    m = identity(4, 2)
    output, weights = m(
        tokens([1.0, 0.0, 0.0, 1.0]),
        tokens([0.0, 9.0, 9.0, key], [key, 9.0, 9.0, 0.0]),
        tokens([2.0, 20.0, 200.0, 2000.0], [6.0, 60.0, 600.0, 6000.0]),
        need_weights=True,
    )
    assert_close(weights, torch.tensor([[[[0.25, 0.75]], [[0.75, 0.25]]]], dtype=torch.float64))
    assert_close(output, tokens([5.0, 50.0, 300.0, 3000.0]))


def test_identity_projections_with_one_allowed_key_return_that_token():
    m, memory = identity(6, 3), torch.randn(2, 5, 6).double()
    one = torch.zeros(4, 5, dtype=torch.bool)
    one[range(4), [3, 0, 4, 3]] = True
    output, _ = m(torch.randn(2, 4, 6).double(), memory, allowed=one)
    assert torch.equal(output, memory[:, [3, 0, 4, 3]])


def test_constant_keys_give_the_mean_of_the_values():
    m, value = identity(6, 2), torch.randn(2, 5, 6).double()
    output, _ = m(torch.randn(2, 4, 6).double(), torch.ones(2, 5, 6).double(), value)
    assert_close(output, value.mean(1, keepdim=True).expand(-1, 4, -1))


@pytest.mark.parametrize(("width", "heads"), [(4, 1), (16, 4), (8, 4)])
def test_the_scale_goes_by_the_head_width_and_not_by_the_width(width, heads):
    d = width // heads
    query, key = torch.ones(1, 1, width).double(), tokens([0.0] * width, [LN3] * width)  # q.k = 0 and d ln 3 a head
    _, weights = identity(width, heads)(query, key, need_weights=True)
    ratio = 3 ** math.sqrt(d)
    expected = torch.tensor([1 / (1 + ratio), ratio / (1 + ratio)], dtype=torch.float64)
    assert_close(weights, expected.expand(1, heads, 1, 2))


def test_causal_identity_is_a_running_mean():
    value = tokens([3.0], [5.0], [10.0])
    output, _ = identity(1, 1, causal=True)(tokens([1.0], [2.0], [3.0]), torch.ones(1, 3, 1).double(), value)
    assert_close(output, tokens([3.0], [4.0], [6.0]))
