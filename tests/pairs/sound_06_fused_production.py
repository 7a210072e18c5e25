from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FusedSelfAttention(nn.Module):
    """Self-attention with a fused kernel, and an eager path when the caller wants the weights.

    Args:
        embed_dim: model width.
        num_heads: number of heads, must divide ``embed_dim``.
        dropout: attention dropout probability.
        bias: whether projections carry a bias.

    ``attn_mask`` is boolean, True = may attend; (B, L) over keys, or (B, L, L).
    A query with nothing to attend to receives a zero context.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim} is not divisible by num_heads={num_heads}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def _expand_mask(self, attn_mask: Tensor, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        if attn_mask.dim() == 3:
            attn_mask = attn_mask[:, None]
        elif attn_mask.shape == (batch, length):
            attn_mask = attn_mask[:, None, None]
        else:
            raise ValueError(f"cannot interpret attn_mask of shape {tuple(attn_mask.shape)}")
        return attn_mask.expand(batch, 1, length, length)

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        batch, length, _ = x.shape
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for t in (q, k, v))
        if attn_mask is not None:
            attn_mask = self._expand_mask(attn_mask, x)
        drop = self.dropout if self.training else 0.0

        weights = None
        if need_weights:
            weights = self._attention_weights(q, k, attn_mask)
            out = F.dropout(weights, p=drop) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=drop)
        out = out.transpose(1, 2).flatten(2)
        return self.out_proj(out), weights

    def _attention_weights(self, q: Tensor, k: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        scores = (q @ k.mT) * self.head_dim ** -0.5
        if attn_mask is None:
            return scores.softmax(dim=-1)
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).masked_fill(~attn_mask, 0.0)
