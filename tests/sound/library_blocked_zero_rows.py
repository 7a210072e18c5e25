"""Library style: a general (query, key, value) attention with the mask conventions of torch.nn.MultiheadAttention.
Both masks are boolean and True = blocked: key_padding_mask is (N, S), attn_mask is (T, S) or (N * heads, T, S). A row
without an allowed key gets all-zero weights and, as the output projection has no bias, an all-zero output. Not causal
by construction. Batch first, query (N, T, D), key and value (N, S, D); returns (output, weights) with the weights of
each head apart, (N, heads, T, S), as they were before dropout.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        bsz, tgt_len, src_len = query.size(0), query.size(1), key.size(1)
        q = self.q_proj(query).view(bsz, tgt_len, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(key).view(bsz, src_len, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(value).view(bsz, src_len, self.num_heads, self.head_dim).transpose(1, 2)

        scores = torch.matmul(q * self.head_dim**-0.5, k.transpose(2, 3))

        blocked = torch.zeros((), dtype=torch.bool, device=scores.device)
        for mask in (key_padding_mask, attn_mask):
            if mask is not None and mask.dtype != torch.bool:
                raise TypeError("masks must be boolean, True = blocked")
        if key_padding_mask is not None:
            blocked = blocked | key_padding_mask.view(bsz, 1, 1, src_len)
        if attn_mask is not None:
            shape = (bsz, self.num_heads) if attn_mask.dim() == 3 else (1, 1)
            blocked = blocked | attn_mask.reshape(*shape, tgt_len, src_len)

        scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1).masked_fill(blocked, 0.0)
        context = torch.matmul(F.dropout(weights, self.dropout, self.training), v)
        return self.out_proj(context.transpose(1, 2).reshape(bsz, tgt_len, self.embed_dim)), weights
