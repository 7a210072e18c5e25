"""Multi-query attention (one key/value head). Models use the two names at the end."""
import functools

import torch
from torch import nn


class MultiQueryAttention(nn.Module):
    def __init__(self, width, heads, causal=False, bias=True, dropout=0.0):
        super().__init__()
        assert width % heads == 0, (width, heads)
        self.heads = heads
        self.size = width // heads
        self.causal = causal
        self.queries = nn.Linear(width, width, bias=bias)
        self.keys_values = nn.Linear(width, 2 * self.size, bias=bias)
        self.mix = nn.Linear(width, width, bias=bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, memory=None, key_mask=None):
        """
        x         batch, length, width
        memory    batch, memory length, width (defaults to x)
        key_mask  batch, memory length; 1 where there is a token, 0 where there is filling
        """
        memory = x if memory is None else memory
        batch, length, width = x.shape
        q = self.queries(x).view(batch, length, self.heads, self.size)
        k, v = self.keys_values(memory).split(self.size, dim=-1)

        logits = torch.einsum("bqhd,bkd->bhqk", q, k) * self.size ** -0.5
        keep = torch.ones(length, k.size(1), dtype=torch.bool, device=x.device)
        if self.causal:
            # the last query is aligned with the last key
            keep = keep.tril(k.size(1) - length)
        keep = keep[None, None]
        if key_mask is not None:
            keep = keep & key_mask.bool()[:, None, None, :]
        logits = logits.masked_fill(~keep, torch.finfo(logits.dtype).min)

        probs = self.drop(logits.softmax(dim=-1))
        y = torch.einsum("bhqk,bkd->bqhd", probs, v)
        return self.mix(y.reshape(batch, length, width))


EncoderMQA = functools.partial(MultiQueryAttention, causal=False)
DecoderMQA = functools.partial(MultiQueryAttention, causal=True, bias=False)
