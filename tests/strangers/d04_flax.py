"""Linen-style attention, so that converted JAX checkpoints load without reshaping kernels."""
from __future__ import annotations

import functools
import operator

import torch
from torch import Tensor, nn


class DenseGeneral(nn.Module):
    """Contracts the trailing ``in_shape`` axes of the input with a kernel of ``in_shape + out_shape``."""

    def __init__(self, in_shape: tuple[int, ...], out_shape: tuple[int, ...], use_bias: bool = True):
        super().__init__()
        self.n_axes = len(in_shape)
        self.kernel = nn.Parameter(torch.empty(*in_shape, *out_shape))
        self.bias = nn.Parameter(torch.zeros(*out_shape)) if use_bias else None
        fan_in = functools.reduce(operator.mul, in_shape)
        nn.init.trunc_normal_(self.kernel, std=fan_in ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tensordot(x, self.kernel, dims=self.n_axes)
        return y if self.bias is None else y + self.bias


def make_attention_mask(query_input: Tensor, key_input: Tensor, pairwise_fn=torch.mul) -> Tensor:
    """1-D token indicators ``[batch..., len]`` to a mask ``[batch..., 1, len_q, len_kv]``."""
    mask = pairwise_fn(query_input.unsqueeze(-1), key_input.unsqueeze(-2))
    return mask.unsqueeze(-3)


def make_causal_mask(x: Tensor) -> Tensor:
    idxs = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
    return make_attention_mask(idxs, idxs, torch.ge)


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    present = [m.bool() for m in masks if m is not None]
    return functools.reduce(torch.logical_and, present) if present else None


def dot_product_attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    depth = query.shape[-1]
    query = query / depth ** 0.5
    attn_weights = torch.einsum("...qhd,...khd->...hqk", query, key)
    if mask is not None:
        big_neg = torch.finfo(attn_weights.dtype).min
        attn_weights = torch.where(mask.bool(), attn_weights, big_neg)
    return torch.softmax(attn_weights, dim=-1)


class MultiHeadDotProductAttention(nn.Module):
    """Multi-head dot-product attention.

    Attributes:
      num_heads: number of attention heads; features must divide by it.
      in_features: features of the inputs.
      qkv_features: dimension of the key, query and value, all heads together.
      out_features: dimension of the last projection.
      dropout_rate: dropout rate on the attention weights.
      use_bias: whether the dense layers have a bias.
    """

    def __init__(self, num_heads: int, in_features: int, qkv_features: int | None = None,
                 out_features: int | None = None, dropout_rate: float = 0.0, use_bias: bool = True):
        super().__init__()
        qkv_features = qkv_features or in_features
        assert qkv_features % num_heads == 0, "Memory dimension must be divisible by number of heads."
        head_dim = qkv_features // num_heads
        self.dropout_rate = dropout_rate
        self.query = DenseGeneral((in_features,), (num_heads, head_dim), use_bias)
        self.key = DenseGeneral((in_features,), (num_heads, head_dim), use_bias)
        self.value = DenseGeneral((in_features,), (num_heads, head_dim), use_bias)
        self.out = DenseGeneral((num_heads, head_dim), (out_features or in_features,), use_bias)

    def forward(self, inputs_q: Tensor, inputs_k: Tensor | None = None, inputs_v: Tensor | None = None, *,
                mask: Tensor | None = None, deterministic: bool | None = None) -> Tensor:
        """Applies attention on ``[batch..., length, features]`` inputs.

        ``mask`` is ``[batch..., num_heads or 1, len_q, len_kv]``; attention weights are masked
        out where its value is ``False``. ``deterministic`` defaults to the module's eval mode.
        """
        if inputs_k is None:
            inputs_k = inputs_q
        if inputs_v is None:
            inputs_v = inputs_k
        if deterministic is None:
            deterministic = not self.training
        query, key, value = self.query(inputs_q), self.key(inputs_k), self.value(inputs_v)
        weights = dot_product_attention_weights(query, key, mask)
        if not deterministic and self.dropout_rate > 0.0:
            weights = nn.functional.dropout(weights, self.dropout_rate)
        x = torch.einsum("...hqk,...khd->...qhd", weights, value)
        return self.out(x)
