import math

import torch
from torch import nn


class ScaledDotProductSelfAttention(nn.Module):
    """Single-head self attention with learned projections.

    Accepts a batch (B, T, d_in) or one sequence (T, d_in) and answers in the same layout.
    mask: bool, True = attend; (T, T), or (B, T, T) with a batch.
    """

    def __init__(self, d_in: int, d_out: int, dropout: float = 0.0, qkv_bias: bool = False):
        super().__init__()
        self.d_out = d_out
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        unbatched = x.dim() == 2
        if unbatched:
            x = x.unsqueeze(0)

        queries = self.W_query(x)
        keys = self.W_key(x)
        values = self.W_value(x)

        attn_scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(self.d_out)
        if mask is not None:
            attn_scores = attn_scores.masked_fill(~mask, torch.finfo(attn_scores.dtype).min)
        attn_weights = self.dropout(torch.softmax(attn_scores, dim=-1))

        context_vec = torch.bmm(attn_weights, values)
        if unbatched:
            context_vec = context_vec.squeeze(0)
        return context_vec
