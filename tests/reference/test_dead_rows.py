"""Queries without an allowed key: refuse, nan, zero, uniform. Sample 1 of 2 is padding from end to end."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention

N, T, S, D = 2, 3, 4, 6
PADDING = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]).bool()[:, None, None, :]


@pytest.fixture
def inputs():
    return torch.randn(N, T, D), torch.randn(N, S, D)


def module(dead_rows, **init):
    return MultiHeadAttention(D, 3, dead_rows=dead_rows, **init)


def test_refuse_is_the_default_and_names_the_row(inputs):
    m = MultiHeadAttention(D, 3)
    with pytest.raises(ValueError, match=r"allowed is all False in row \[1, 0, 0\]: .*dead_rows='zero'"):
        m(*inputs, allowed=PADDING)
    one_row = torch.ones(T, S, dtype=torch.bool)
    one_row[2] = False
    with pytest.raises(ValueError, match=r"row \[2\]"):
        m(*inputs, allowed=one_row)
    per_head = torch.ones(N, 3, T, S, dtype=torch.bool)
    per_head[1, 2, 1] = False
    with pytest.raises(ValueError, match=r"row \[1, 2, 1\]"):
        m(*inputs, allowed=per_head)


def test_refuse_sees_rows_that_only_all_masks_together_kill(inputs):
    first_hidden = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]).bool()[:, None, None, :]
    with pytest.raises(ValueError, match=r"row \[0, 0, 0\]"):
        module("refuse", causal=True)(*inputs, allowed=first_hidden)
    with pytest.raises(ValueError, match=r"row \[0\]"):
        module("refuse", causal=True, corner="bottom-right")(inputs[1], inputs[0])
    bias = torch.zeros(T, S)
    bias[1] = -torch.inf
    with pytest.raises(ValueError, match=r"row \[1\]"):
        module("refuse")(*inputs, bias=bias)


@pytest.mark.parametrize("dead_rows", ["refuse", "nan", "zero", "uniform"])
def test_without_a_dead_row_the_choice_does_not_matter(dead_rows, inputs):
    m, alive = module(dead_rows), torch.tensor([1, 1, 1, 0]).bool().expand(T, S)
    expected, _ = m(inputs[0], inputs[1][:, :3])
    assert_close(m(*inputs, allowed=alive)[0], expected)


def test_nan(inputs):
    output, weights = module("nan")(*inputs, allowed=PADDING, need_weights=True)
    assert weights[1].isnan().all()
    assert output[1].isnan().all()


def test_zero_gives_the_output_bias_exactly(inputs):
    m = module("zero")
    output, weights = m(*inputs, allowed=PADDING, need_weights=True)
    assert torch.equal(weights[1], torch.zeros(3, T, S))
    assert torch.equal(output[1], m.o.bias.expand(T, D))
    assert m.o.bias.abs().min() > 0


def test_uniform_gives_the_mean_over_all_keys(inputs):
    m = module("uniform")
    output, weights = m(*inputs, allowed=PADDING, need_weights=True)
    assert torch.equal(weights[1], torch.full((3, T, S), 0.25))
    assert_close(output[1], m.o(m.v(inputs[1][1]).mean(0)).expand(T, D))


@pytest.mark.parametrize("dead_rows", ["nan", "zero", "uniform"])
def test_the_other_sample_is_as_if_alone(dead_rows, inputs):
    m = module(dead_rows)
    output, weights = m(*inputs, allowed=PADDING, need_weights=True)
    alone, alone_weights = m(*(x[:1] for x in inputs), allowed=PADDING[:1], need_weights=True)
    assert_close(output[:1], alone)
    assert_close(weights[:1], alone_weights)


@pytest.mark.parametrize("dead_rows", ["zero", "uniform"])
@pytest.mark.parametrize("form", ["allowed", "bias"])
def test_gradients_stay_finite(dead_rows, form, inputs):
    m = module(dead_rows)
    query, memory = (x.requires_grad_() for x in inputs)
    mask = PADDING if form == "allowed" else torch.zeros(PADDING.shape).masked_fill(~PADDING, -torch.inf)
    m(query, memory, **{form: mask})[0].square().sum().backward()
    for x in (query, memory, *m.parameters()):
        assert x.grad.isfinite().all()
    assert (query.grad[0] != 0).all()
    assert (query.grad[1] == 0).all()
    assert bool((memory.grad[1] != 0).any()) == (dead_rows == "uniform")


def test_only_the_dead_row_is_settled():
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    allowed = torch.ones(1, 2, 3, 5, dtype=torch.bool)
    allowed[0, 1, 2] = False
    _, weights = DotProductAttention(2, dead_rows="zero")(q, k, k, allowed, need_weights=True)
    assert (weights.sum(-1) > 0.5).tolist() == [[[True, True, True], [True, True, False]]]
