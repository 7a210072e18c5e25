"""Dropout works on the weights. The values are two identities, so that the output is the dropped weights, twice."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention

T, S = 64, 8


def run(p, training=True):
    q, k = torch.randn(2, 3, T, 4).double(), torch.randn(2, 3, S, 4).double()
    v = torch.eye(S).double().repeat(2, 3, 1, 2)
    m = DotProductAttention(3, dropout=p).train(training)
    output, weights = m(q, k, v, need_weights=True)
    dropped, twice = output.chunk(2, dim=-1)
    assert torch.equal(dropped, twice), "weights are dropped, not outputs"
    return dropped, weights, (q @ k.mT / 2).softmax(-1)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.8])
def test_entries_are_dropped_or_scaled_after_softmax(p):
    dropped, _, sound = run(p)
    kept = dropped != 0
    assert_close(dropped, torch.where(kept, sound / (1 - p), 0.0))
    assert abs(kept.double().mean() - (1 - p)) < 0.05  # 3072 entries: five standard deviations at least
    assert (kept.any(-1) & ~kept.all(-1)).any(), "entries are dropped one by one, not rows"
    assert kept.any(-2).all(), "entries are dropped one by one, not keys"
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[:, 0], kept[:, 1])


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_returned_weights_are_those_before_dropout(p):
    _, weights, sound = run(p)
    assert_close(weights, sound)
    assert_close(weights.sum(-1), torch.ones(2, 3, T).double())


@pytest.mark.parametrize("p", [0.25, 0.8])
def test_evaluation_drops_nothing(p):
    dropped, weights, sound = run(p, training=False)
    assert_close(dropped, sound)
    assert torch.equal(dropped, weights)


def test_rate_0_drops_nothing_and_is_the_default():
    dropped, _, sound = run(0.0)
    assert_close(dropped, sound)
    assert DotProductAttention(1).drop.p == 0


def test_the_module_passes_its_rate_on():
    m, x = MultiHeadAttention(6, 3, dropout=0.5), torch.randn(2, 5, 6)
    first, weights = m(x, need_weights=True)
    second, again = m(x, need_weights=True)
    assert not torch.equal(first, second)
    assert torch.equal(weights, again)
    m.eval()
    assert torch.equal(m(x)[0], m(x)[0])


def test_the_mean_over_many_passes_is_the_output_without():
    m = DotProductAttention(1, dropout=0.3)
    q, k, v = torch.randn(1, 1, 1, 2), torch.randn(1, 1, 3, 2), torch.rand(1, 1, 3, 1)
    many = 4000
    output, _ = m(*(x.expand(many, -1, -1, -1) for x in (q, k, v)))
    assert abs(output.mean() - m.eval()(q, k, v)[0].item()) < 0.03
