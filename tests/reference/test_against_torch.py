"""In addition to the closed forms: torch's own two attentions, on the same weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention


def drawn(*shape):
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(("h", "g"), [(1, 1), (4, 4), (6, 2), (6, 3), (4, 1)])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"causal": True}], ids=str)
def test_scaled_dot_product_attention(h, g, options):
    q, k, v = torch.randn(2, h, 4, 6).double(), torch.randn(2, g, 5, 6).double(), torch.randn(2, g, 5, 3).double()
    output, _ = DotProductAttention(h, g, **options)(q, k, v)
    expected = F.scaled_dot_product_attention(
        q, k, v, scale=options.get("scale"), is_causal=options.get("causal", False), enable_gqa=h != g
    )
    assert_close(output, expected)


@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 1, 5), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str)
def test_scaled_dot_product_attention_with_masks(shape):
    q, k, v = torch.randn(2, 3, 4, 6).double(), torch.randn(2, 3, 5, 6).double(), torch.randn(2, 3, 5, 6).double()
    allowed, bias = drawn(*shape), torch.randn(shape).double()
    m = DotProductAttention(3)
    assert_close(m(q, k, v, allowed)[0], F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))
    assert_close(m(q, k, v, None, bias)[0], F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def copied(theirs):
    """The reference with the weights of an nn.MultiheadAttention, whose biases are drawn first: they begin as 0."""
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    m = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, key_width=theirs.kdim, value_width=theirs.vdim).double()
    if theirs.in_proj_weight is None:
        weights = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    else:
        weights = theirs.in_proj_weight.chunk(3)
    for layer, weight, bias in zip((m.q, m.k, m.v), weights, theirs.in_proj_bias.chunk(3), strict=True):
        layer.weight.data, layer.bias.data = weight.data, bias.data
    m.o.load_state_dict(theirs.out_proj.state_dict())
    return m


@pytest.mark.parametrize("widths", [(8, 8), (5, 7)])
@pytest.mark.parametrize("masks", ["none", "padding", "triangle", "both", "bias"])
def test_nn_multihead_attention(widths, masks):
    theirs = nn.MultiheadAttention(8, 4, kdim=widths[0], vdim=widths[1], batch_first=True).double()
    m = copied(theirs)
    inputs = [torch.randn(2, length, width).double() for length, width in ((5, 8), (5, widths[0]), (5, widths[1]))]
    padding = drawn(2, 5) if masks in ("padding", "both") else None
    square = torch.ones(5, 5).tril().bool() if masks in ("triangle", "both") else None
    bias = torch.randn(5, 5).double() if masks == "bias" else None
    allowed = [x for x in (square, None if padding is None else padding[:, None, None, :]) if x is not None]
    together = allowed[0] & allowed[-1] if allowed else None
    output, weights = m(*inputs, allowed=together, bias=bias, need_weights=True)
    expected, expected_weights = theirs(
        *inputs,
        key_padding_mask=None if padding is None else ~padding,  # True hides
        attn_mask=bias if square is None else ~square,
        average_attn_weights=False,
    )
    assert_close(output, expected)
    assert_close(weights, expected_weights)
