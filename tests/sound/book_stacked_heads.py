"""Book-chapter style: several single causal heads side by side in a ModuleList, their results concatenated and sent
through an output projection. No mask argument: each head is causal by construction through a boolean buffer (True =
blocked, above the diagonal), so the first key is open to every row and no row lacks an allowed key. d_out is the width
of the concatenated result, each head makes d_out / num_heads of it. Batch first, (N, T, d_in) to (N, T, d_out), T at
most context_length.
"""

import torch
import torch.nn as nn


class CausalHead(nn.Module):
    """A single attention head that never looks ahead."""

    def __init__(self, d_in, head_dim, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.head_dim = head_dim
        self.W_query = nn.Linear(d_in, head_dim, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, head_dim, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, head_dim, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        future = torch.triu(torch.ones(context_length, context_length, dtype=torch.bool), diagonal=1)
        self.register_buffer("future", future)

    def forward(self, x):
        num_tokens = x.shape[1]
        queries = self.W_query(x)
        keys = self.W_key(x)
        values = self.W_value(x)

        attn_scores = queries @ keys.transpose(1, 2)
        attn_scores = attn_scores.masked_fill(self.future[:num_tokens, :num_tokens], float("-inf"))
        attn_weights = torch.softmax(attn_scores / self.head_dim**0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)

        return attn_weights @ values


class MultiHeadAttention(nn.Module):
    """Run num_heads causal heads one after the other and combine what they found."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        if d_out % num_heads != 0:
            raise ValueError("d_out must be divisible by num_heads")
        head_dim = d_out // num_heads
        self.heads = nn.ModuleList(
            [CausalHead(d_in, head_dim, context_length, dropout, qkv_bias) for _ in range(num_heads)]
        )
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        context_vec = torch.cat([head(x) for head in self.heads], dim=-1)
        return self.out_proj(context_vec)
