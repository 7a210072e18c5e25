"""Multi-head attention, after the walk-through notebook of "Attention is all you need"."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def clones(module, N):
    "N independent layers of the same shape."
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    "1 on and below the diagonal: a position may look at itself and back."
    upper = torch.triu(torch.ones(1, size, size), diagonal=1).type(torch.uint8)
    return upper == 0


def make_std_mask(tgt, pad):
    "Hide the padding and the words to come."
    tgt_mask = (tgt != pad).unsqueeze(-2)
    return tgt_mask & subsequent_mask(tgt.size(-1)).type_as(tgt_mask.data)


def attention(query, key, value, mask=None, dropout=None):
    "Scaled dot products, a softmax, and a weighted sum of the values."
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class LayerNorm(nn.Module):
    "Used by the sublayer connections around this module."

    def __init__(self, features, eps=1e-6):
        super(LayerNorm, self).__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        "h heads, each d_model // h wide."
        super(MultiHeadedAttention, self).__init__()
        assert d_model % h == 0
        # d_v and d_k are the same here
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            # one mask for all h heads
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)

        # 1) project, d_model => h x d_k
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]

        # 2) attend in every head at once
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)

        # 3) join the heads and apply the last linear
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        del query, key, value
        return self.linears[-1](x)
