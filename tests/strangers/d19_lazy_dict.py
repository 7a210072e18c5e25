"""Attention whose input widths are found out on the first call."""
import math

import torch
from torch import nn


def masked_softmax(scores, mask):
    """scores: (batch, heads, q, k); mask: (batch, q, k) or (batch, 1, k) of 0/1, 0 = not to be seen."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    scores = scores.float().masked_fill(mask.unsqueeze(1) == 0, -1e9)
    return torch.softmax(scores, dim=-1)


class LazyMultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        assert num_hiddens % num_heads == 0
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.W_q = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_k = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_v = nn.LazyLinear(num_hiddens, bias=bias)
        self.W_o = nn.LazyLinear(num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        return X.permute(0, 2, 1, 3)

    def transpose_output(self, X):
        X = X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys, values, mask=None):
        queries = self.transpose_qkv(self.W_q(queries))
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        d = queries.shape[-1]
        scores = torch.matmul(queries, keys.transpose(2, 3)) / math.sqrt(d)
        attention = masked_softmax(scores, mask).to(values.dtype)
        output = torch.matmul(self.dropout(attention), values)
        return {
            "output": self.W_o(self.transpose_output(output)),
            "attention": attention,
        }
