from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class MaskedAttention(nn.Module):
    """Multi-head attention for sets of varying size.

    mask: bool (batch, len_q, len_k), True = pair is allowed. A query whose row is entirely
    False attends to nothing: its context is zero and so are its weights.
    """

    def __init__(self, model_dim: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = model_dim // num_heads
        self.dropout = dropout
        self.q_linear = nn.Linear(model_dim, model_dim)
        self.k_linear = nn.Linear(model_dim, model_dim)
        self.v_linear = nn.Linear(model_dim, model_dim)
        self.out = nn.Linear(model_dim, model_dim)

    def forward(self, q, k, v, mask: Optional[torch.Tensor] = None, return_attention: bool = False):
        bs = q.size(0)
        q = self.q_linear(q).view(bs, -1, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_linear(k).view(bs, -1, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v_linear(v).view(bs, -1, self.num_heads, self.head_dim).transpose(1, 2)
        dropout_p = self.dropout if self.training else 0.0

        if mask is not None:
            mask = mask.unsqueeze(1)
            dead = ~mask.any(dim=-1, keepdim=True)

        if return_attention:
            scores = q @ k.transpose(-2, -1) / self.head_dim ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            attention = scores.softmax(dim=-1)
            context = F.dropout(attention, p=dropout_p) @ v
        else:
            attention = None
            context = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None if mask is None else mask | dead, dropout_p=dropout_p
            )
            if mask is not None:
                context = context.masked_fill(dead, 0.0)

        context = context.transpose(1, 2).reshape(bs, -1, self.num_heads * self.head_dim)
        output = self.out(context)
        return (output, attention) if return_attention else output
