"""Drop-in for ``torch.nn.MultiheadAttention`` whose body we can actually edit.

State dict keys are the same (``in_proj_weight``, ``in_proj_bias``, ``out_proj.*``) so that
checkpoints load into either. Only the equal-width case is covered.
"""
import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _as_additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    return mask.to(dtype)


class PlainMultiheadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 batch_first: bool = True, device=None, dtype=None) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim, **factory_kwargs))
        if bias:
            self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim, **factory_kwargs))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **factory_kwargs)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        w_q, w_k, w_v = self.in_proj_weight.chunk(3)
        if self.in_proj_bias is None:
            b_q = b_k = b_v = None
        else:
            b_q, b_k, b_v = self.in_proj_bias.chunk(3)
        return F.linear(query, w_q, b_q), F.linear(key, w_k, b_k), F.linear(value, w_v, b_v)

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
                attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
        r"""Shapes and masks as in the original: ``(N, L, E)`` when ``batch_first``, boolean masks are
        ``True`` where attention is *not* allowed, float masks are added to the scores.

        ``attn_mask`` is ``(L, S)`` or ``(N * num_heads, L, S)``, ``key_padding_mask`` is ``(N, S)``.
        """
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        N, L, E = query.shape
        S = key.shape[1]
        q, k, v = self._project(query, key, value)
        q = q.view(N, L, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.view(N, S, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(N, S, self.num_heads, self.head_dim).transpose(1, 2)

        scores = torch.matmul(q / math.sqrt(self.head_dim), k.transpose(-2, -1))
        bias = None
        if attn_mask is not None:
            bias = _as_additive(attn_mask, scores.dtype)
            if bias.dim() == 3:
                bias = bias.view(N, self.num_heads, L, S)
        elif is_causal:
            bias = _as_additive(torch.ones(L, S, dtype=torch.bool, device=q.device).triu(1), scores.dtype)
        if key_padding_mask is not None:
            pad = _as_additive(key_padding_mask, scores.dtype).view(N, 1, 1, S)
            bias = pad if bias is None else bias + pad

        masked = scores if bias is None else scores + bias
        attn = F.softmax(masked, dim=-1)
        dropped = F.dropout(attn, self.dropout, self.training)
        out = torch.matmul(dropped, v).transpose(1, 2).reshape(N, L, E)
        out = self.out_proj(out)
        if not self.batch_first:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        weights = attn.mean(dim=1) if average_attn_weights else attn
        return out, weights
