#!/usr/bin/env python3
# -*- coding: utf-8 -*-

"""Attention of the encoder and decoder layers, and the masks it takes."""

import math

import torch
from torch import nn


def make_pad_mask(lengths, maxlen=None):
    """Padding positions of a batch, (B, Tmax) with True at the padding."""
    maxlen = int(max(lengths)) if maxlen is None else maxlen
    steps = torch.arange(maxlen, device=lengths.device)
    return steps.unsqueeze(0) >= lengths.unsqueeze(1)


def subsequent_mask(size, device="cpu"):
    """Lower triangle (size, size) for the decoder."""
    return torch.ones(size, size, device=device, dtype=torch.bool).tril()


class MultiHeadedAttention(nn.Module):
    """Multi-head attention with separate query, key and value.

    Args:
        n_head (int): Heads.
        n_feat (int): Size of inputs and output.
        dropout_rate (float): Dropout of the weights.

    """

    def __init__(self, n_head, n_feat, dropout_rate):
        """Set up the layers."""
        super(MultiHeadedAttention, self).__init__()
        assert n_feat % n_head == 0
        # d_v is taken equal to d_k
        self.d_k = n_feat // n_head
        self.h = n_head
        self.linear_q = nn.Linear(n_feat, n_feat)
        self.linear_k = nn.Linear(n_feat, n_feat)
        self.linear_v = nn.Linear(n_feat, n_feat)
        self.linear_out = nn.Linear(n_feat, n_feat)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout_rate)

    def forward_qkv(self, query, key, value):
        """Project and split into heads.

        Returns:
            torch.Tensor: query (#batch, n_head, time1, d_k).
            torch.Tensor: key (#batch, n_head, time2, d_k).
            torch.Tensor: value (#batch, n_head, time2, d_k).

        """
        n_batch = query.size(0)
        q = self.linear_q(query).view(n_batch, -1, self.h, self.d_k)
        k = self.linear_k(key).view(n_batch, -1, self.h, self.d_k)
        v = self.linear_v(value).view(n_batch, -1, self.h, self.d_k)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def forward_attention(self, value, scores, mask):
        """Weigh the values; queries whose mask row is all zero get a zero context."""
        n_batch = value.size(0)
        if mask is not None:
            mask = mask.unsqueeze(1).eq(0)  # (batch, 1, *, time2)
            min_value = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(mask, min_value)
            self.attn = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)
        else:
            self.attn = torch.softmax(scores, dim=-1)

        p_attn = self.dropout(self.attn)
        x = torch.matmul(p_attn, value)
        x = x.transpose(1, 2).contiguous().view(n_batch, -1, self.h * self.d_k)
        return self.linear_out(x)

    def forward(self, query, key, value, mask):
        """Attend.

        Args:
            query (torch.Tensor): (#batch, time1, n_feat).
            key (torch.Tensor): (#batch, time2, n_feat).
            value (torch.Tensor): (#batch, time2, n_feat).
            mask (torch.Tensor): (#batch, 1, time2) or (#batch, time1, time2),
                nonzero where the query may look, or None.

        Returns:
            torch.Tensor: (#batch, time1, n_feat).

        """
        q, k, v = self.forward_qkv(query, key, value)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        return self.forward_attention(v, scores, mask)
