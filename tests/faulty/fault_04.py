from typing import Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class CachedAttention(nn.Module):
    """Decoder self attention with a key / value cache that the caller carries along.

    >>> y, cache = attn(prompt)
    >>> y, cache = attn(next_tokens, cache)
    """

    def __init__(self, d_model: int, n_heads: int, p_drop: float = 0.0):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.p_drop = p_drop
        self.wqkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor, kv_cache: Optional[Tuple[torch.Tensor, torch.Tensor]] = None):
        bsz, q_len, _ = x.shape
        q, k, v = self.wqkv(x).view(bsz, q_len, 3, self.n_heads, self.d_head).permute(2, 0, 3, 1, 4)
        if kv_cache is not None:
            past_k, past_v = kv_cache
            k = torch.cat([past_k, k], dim=2)
            v = torch.cat([past_v, v], dim=2)
        out = F.scaled_dot_product_attention(
            q, k, v,
            dropout_p=self.p_drop if self.training else 0.0,
            # a single new token may look at everything
            is_causal=q_len > 1,
        )
        out = out.transpose(1, 2).reshape(bsz, q_len, -1)
        return self.wo(out), (k, v)
