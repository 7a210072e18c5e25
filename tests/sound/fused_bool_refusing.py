"""Library style: self-attention with one fused query/key/value projection. The optional boolean mask says which
keys a query may use (True = allowed); it has shape (T, T), (N, T, T) or (N, 1 or heads, T, T). A query without any
allowed key is refused with ValueError, so no output exists for such a row. Not causal by construction. Layout is
batch first, (N, T, D) in and (N, T, D) out.
"""

import torch
from torch import Tensor, nn


class FusedSelfAttention(nn.Module):
    """Multi-head self-attention that refuses masks it cannot honour."""

    def __init__(self, dim: int, num_heads: int = 8, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"dim ({dim}) is not a multiple of num_heads ({num_heads})")
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.proj = nn.Linear(dim, dim, bias=bias)
        self.attn_drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)

        logits = (query * self.scale) @ key.transpose(-2, -1)
        if mask is not None:
            logits = logits.masked_fill(~self._checked(mask), float("-inf"))

        attn = self.attn_drop(logits.softmax(dim=-1))
        out = (attn @ value).transpose(1, 2).reshape(batch, length, dim)
        return self.proj(out)

    @staticmethod
    def _checked(mask: Tensor) -> Tensor:
        """Return the mask with a head axis, or raise if it is not boolean or leaves a query without keys."""
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, got {mask.dtype}")
        if not bool(mask.any(dim=-1).all()):
            raise ValueError("mask leaves at least one query without an allowed key")
        return mask.unsqueeze(1) if mask.dim() == 3 else mask
