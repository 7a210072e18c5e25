"""Call forms, parameters, and what attention without a mask is indifferent to."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import MultiHeadAttention


def test_self_attention_takes_the_query_for_all_three():
    m, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    assert torch.equal(m(x)[0], m(x, x, x)[0])


def test_a_memory_is_key_and_value():
    m, query, memory = MultiHeadAttention(6, 3), torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    assert torch.equal(m(query, memory)[0], m(query, memory, memory)[0])
    assert m(query, memory)[0].shape == (2, 4, 6)


def test_separate_inputs_are_told_apart():
    m, x, y, z = MultiHeadAttention(6, 3), *torch.randn(3, 2, 4, 6)
    outputs = [m(*three)[0] for three in ((x, y, z), (y, x, z), (x, z, y), (x, y, y), (x, x, z), (x, x, x))]
    for i, one in enumerate(outputs):
        for other in outputs[:i]:
            assert (one - other).abs().max() > 1e-3


def test_names_of_the_arguments():
    m, x, y, z = MultiHeadAttention(6, 3), *torch.randn(3, 2, 4, 6)
    allowed, bias = torch.ones(4, 4).tril().bool(), torch.randn(4, 4)
    named = m(query_NTD=x, key_NSD=y, value_NSD=z, allowed=allowed, bias=bias, need_weights=True)
    placed = m(x, y, z, allowed, bias, True)
    assert all(torch.equal(a, b) for a, b in zip(named, placed, strict=True))


def test_weights_only_when_asked_for_and_the_output_is_the_same():
    m, x = MultiHeadAttention(6, 3, causal=True), torch.randn(2, 4, 6)
    output, nothing = m(x)
    again, weights = m(x, need_weights=True)
    assert nothing is None
    assert weights.shape == (2, 3, 4, 4)
    assert torch.equal(output, again)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 12])
def test_the_parameters_are_four_square_layers_whatever_the_heads(heads):
    D = 12
    assert sum(p.numel() for p in MultiHeadAttention(D, heads).parameters()) == 4 * D * D + 4 * D


def test_grouped_heads_save_parameters_of_keys_and_values():
    """D=12, h=6, g=2, d=2: q and o are 12 x 12, k and v 4 x 12."""
    parameters = sum(p.numel() for p in MultiHeadAttention(12, 6, 2).parameters())
    assert parameters == 2 * (144 + 12) + 2 * (48 + 4)


def test_the_order_of_the_queries_is_the_order_of_the_outputs():
    m, query, memory = MultiHeadAttention(6, 3).double(), torch.randn(2, 5, 6).double(), torch.randn(2, 7, 6).double()
    order = torch.randperm(5)
    assert_close(m(query[:, order], memory)[0], m(query, memory)[0][:, order])


def test_the_order_of_the_keys_does_not_matter():
    m, query, key, value = MultiHeadAttention(6, 3).double(), *torch.randn(3, 2, 5, 6).double()
    order = torch.randperm(5)
    assert_close(m(query, key[:, order], value[:, order])[0], m(query, key, value)[0])
    assert (m(query, key[:, order], value)[0] - m(query, key, value)[0]).abs().max() > 1e-3


def test_self_attention_is_equivariant_without_a_mask_and_not_when_causal():
    x, order = torch.randn(2, 5, 6).double(), torch.tensor([3, 1, 4, 0, 2])
    m = MultiHeadAttention(6, 3).double()
    assert_close(m(x[:, order])[0], m(x)[0][:, order])
    m.causal = True
    assert (m(x[:, order])[0] - m(x)[0][:, order]).abs().max() > 1e-3


def test_samples_do_not_see_each_other():
    m, x = MultiHeadAttention(6, 3).double(), torch.randn(3, 4, 6).double()
    assert_close(m(x)[0], torch.cat([m(x[n : n + 1])[0] for n in range(3)]))


def test_inputs_need_not_be_contiguous():
    m, x = MultiHeadAttention(6, 3), torch.randn(4, 2, 6)
    assert_close(m(x.transpose(0, 1))[0], m(x.transpose(0, 1).contiguous())[0])
