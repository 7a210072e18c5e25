from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiheadAttention(nn.Module):
    r"""A readable stand-in for :class:`torch.nn.MultiheadAttention` (``batch_first=True``).

    key_padding_mask: (N, S) bool, ``True`` = ignore this key.
    attn_mask: (L, S) or (N * num_heads, L, S); bool with ``True`` = not allowed, or float (added).
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True):
        super().__init__()
        assert embed_dim % num_heads == 0, "embed_dim must be divisible by num_heads"
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self._reset_parameters()

    def _reset_parameters(self):
        for lin in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(lin.weight)

    @staticmethod
    def _to_float(mask: Tensor, like: Tensor) -> Tensor:
        if mask.dtype == torch.bool:
            return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
        return mask.to(like.dtype)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        attn_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        average_attn_weights: bool = True,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        N, L, E = query.shape
        S = key.shape[1]
        H, D = self.num_heads, self.head_dim

        q = self.q_proj(query).view(N, L, H, D).permute(0, 2, 1, 3)
        k = self.k_proj(key).view(N, S, H, D).permute(0, 2, 1, 3)
        v = self.v_proj(value).view(N, S, H, D).permute(0, 2, 1, 3)

        logits = torch.einsum("nhld,nhsd->nhls", q * D ** -0.5, k)
        if attn_mask is not None:
            attn_mask = self._to_float(attn_mask, logits)
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.view(N, H, L, S)
            logits = logits + attn_mask
        if key_padding_mask is not None:
            logits = logits + self._to_float(key_padding_mask, logits).view(N, 1, 1, S)

        # rows where everything is -inf get zero weights instead of NaN
        dead = torch.isneginf(logits).all(dim=-1, keepdim=True)
        weights = logits.masked_fill(dead, 0.0).softmax(dim=-1).masked_fill(dead, 0.0)
        attn = F.dropout(weights, p=self.dropout, training=self.training)

        out = torch.einsum("nhls,nhsd->nlhd", attn, v).reshape(N, L, E)
        out = self.out_proj(out)
        if not need_weights:
            return out, None
        return out, weights.mean(dim=1) if average_attn_weights else weights
