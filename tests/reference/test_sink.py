"""A sink: one more logit in softmax, whose weight is dropped."""

import math

import pytest
import torch
from torch.testing import assert_close

from attncheck_faults import faults
from attncheck_reference import DotProductAttention, MultiHeadAttention


def test_by_hand():
    """Scores 0 and ln 3, and a sink of ln 4: weights 1/8 and 3/8, and half of all in the sink."""
    m = DotProductAttention(1, sink=True)
    torch.nn.init.constant_(m.sink, math.log(4))
    q, k, v = torch.ones(1, 1, 1, 1), torch.tensor([0, math.log(3)]).view(1, 1, 2, 1), torch.tensor([8.0, 16.0])
    output, weights = m(q, k, v.view(1, 1, 2, 1), need_weights=True)
    assert_close(weights.flatten(), torch.tensor([1 / 8, 3 / 8]))
    assert_close(output.item(), 7.0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("extra", [0, 2])
def test_a_softmax_with_one_more_logit_of_each_head(masked, extra):
    m, x = MultiHeadAttention(8, 4, 2, sink=True, extra_keys=extra).double(), torch.randn(2, 5, 8).double()
    allowed = torch.rand(5, 5) < 0.5 if masked else None
    q, k, v = m.heads_of(x, x, x)
    scores = q @ m.spread(k).mT / 2**0.5
    scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    values = m.spread(v)
    if extra:
        scores = torch.cat((scores, q @ m.spread(m.extra_k[None]).mT / 2**0.5), -1)
        values = torch.cat((values, m.spread(m.extra_v[None]).expand(2, -1, -1, -1)), -2)
    together = torch.cat((scores, m.sink.view(4, 1, 1).expand(2, 4, 5, 1)), -1).softmax(-1)
    output, weights = m(x, allowed=allowed, need_weights=True)
    assert_close(weights, together[..., :5])
    assert_close(output, m.o((together[..., :-1] @ values).transpose(1, 2).flatten(2)))


def test_a_sink_of_0_is_a_one_in_the_denominator_and_a_low_one_is_none():
    m, x = MultiHeadAttention(8, 2, sink=True).double(), torch.randn(2, 5, 8).double()
    plain, one = MultiHeadAttention(8, 2).double(), faults()["softmax.extra-one"].broken()(8, 2).double()
    for other, sink in ((one, 0.0), (plain, -1e9)):
        other.load_state_dict(m.state_dict(), strict=False)
        torch.nn.init.constant_(m.sink, sink)
        assert_close(m(x)[0], other(x)[0])
    assert not torch.allclose(one(x)[0], plain(x)[0])


@pytest.mark.parametrize("dead_rows", ["refuse", "nan", "zero", "uniform"])
def test_no_row_is_dead_since_the_sink_takes_all(dead_rows):
    m, x = MultiHeadAttention(8, 2, sink=True, dead_rows=dead_rows), torch.randn(1, 3, 8)
    allowed = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]]).bool()
    output, weights = m(x, allowed=allowed, need_weights=True)
    assert not weights[0, :, 1].any()
    assert_close(output[0, 1], m.o.bias)


def test_it_learns_and_keeps_the_dtype():
    m = MultiHeadAttention(8, 2, sink=True, causal=True)
    m(torch.randn(1, 4, 8))[0].square().sum().backward()
    assert m.sink.grad.abs().min() > 0
    output, weights = m.bfloat16()(torch.randn(1, 4, 8).bfloat16(), need_weights=True)
    assert (output.dtype, weights.dtype) == (torch.bfloat16, torch.bfloat16)
