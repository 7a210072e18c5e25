"""
---
title: Multi-Headed Attention
summary: Notes and code on multi-headed attention, sequence dimension first.
---
"""

import math
from typing import Optional, List

import torch
from torch import nn


class PrepareForMultiHeadAttention(nn.Module):
    """
    ## Linear transformation and split into heads

    Serves the **query**, **key** and **value** vectors alike.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, bias: bool):
        super().__init__()
        self.linear = nn.Linear(d_model, heads * d_k, bias=bias)
        self.heads = heads
        self.d_k = d_k

    def forward(self, x: torch.Tensor):
        # Input is `[seq_len, batch_size, d_model]` or `[batch_size, d_model]`;
        # only the last dimension is split.
        head_shape = x.shape[:-1]
        x = self.linear(x)
        # Output is `[seq_len, batch_size, heads, d_k]` or `[batch_size, heads, d_k]`
        return x.view(*head_shape, self.heads, self.d_k)


class MultiHeadAttention(nn.Module):
    r"""
    ## Multi-Head Attention Module

    $$\mathop{softmax}\Bigg(\frac{Q K^\top}{\sqrt{d_k}}\Bigg)V$$
    """

    def __init__(self, heads: int, d_model: int, dropout_prob: float = 0.1, bias: bool = True):
        super().__init__()
        self.d_k = d_model // heads
        self.heads = heads
        self.query = PrepareForMultiHeadAttention(d_model, heads, self.d_k, bias=bias)
        self.key = PrepareForMultiHeadAttention(d_model, heads, self.d_k, bias=bias)
        self.value = PrepareForMultiHeadAttention(d_model, heads, self.d_k, bias=True)
        # Softmax along the key dimension
        self.softmax = nn.Softmax(dim=1)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout_prob)
        self.scale = 1 / math.sqrt(self.d_k)
        # Kept for logging and plots, not needed in training
        self.attn = None

    def get_scores(self, query: torch.Tensor, key: torch.Tensor):
        # $S_{ijbh} = \sum_d Q_{ibhd} K_{jbhd}$
        return torch.einsum('ibhd,jbhd->ijbh', query, key)

    def prepare_mask(self, mask: torch.Tensor, query_shape: List[int], key_shape: List[int]):
        """
        `mask` is `[seq_len_q, seq_len_k, batch_size]`, zero where a query has no
        access to a key. The first and the last dimension may be one.
        """
        assert mask.shape[0] == 1 or mask.shape[0] == query_shape[0]
        assert mask.shape[1] == key_shape[0]
        assert mask.shape[2] == 1 or mask.shape[2] == query_shape[1]
        # Same mask for all heads: `[seq_len_q, seq_len_k, batch_size, heads]`
        return mask.unsqueeze(-1)

    def forward(self, *,
                query: torch.Tensor,
                key: torch.Tensor,
                value: torch.Tensor,
                mask: Optional[torch.Tensor] = None):
        # `query`, `key` and `value` are `[seq_len, batch_size, d_model]`
        seq_len, batch_size, _ = query.shape
        if mask is not None:
            mask = self.prepare_mask(mask, query.shape, key.shape)

        query = self.query(query)
        key = self.key(key)
        value = self.value(value)

        scores = self.get_scores(query, key)
        scores = scores * self.scale
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float('-inf'))
        attn = self.softmax(scores)
        attn = self.dropout(attn)

        x = torch.einsum("ijbh,jbhd->ibhd", attn, value)
        self.attn = attn.detach()
        # Concatenate the heads
        x = x.reshape(seq_len, batch_size, -1)
        return self.output(x)
