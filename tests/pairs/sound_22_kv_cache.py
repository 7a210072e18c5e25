from typing import Optional, Tuple

import torch
from torch import Tensor, nn


class CachedCausalAttention(nn.Module):
    """Causal attention for incremental decoding.

    ``past_key_value`` holds (keys, values), each (B, H, past, D), of the positions already seen.
    Returns the output for the new positions, and the extended cache.
    """

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def _heads(self, t: Tensor) -> Tensor:
        B, T, _ = t.shape
        return t.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

    def forward(
        self, hidden_states: Tensor, past_key_value: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        B, T, C = hidden_states.shape
        q = self._heads(self.q_proj(hidden_states))
        k = self._heads(self.k_proj(hidden_states))
        v = self._heads(self.v_proj(hidden_states))

        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        total = k.size(2)

        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_dim ** -0.5
        allowed = torch.ones(T, total, dtype=torch.bool, device=q.device).tril(diagonal=total - T)
        scores = scores.masked_fill(~allowed, float("-inf"))
        out = torch.matmul(scores.softmax(dim=-1), v)

        out = out.transpose(1, 2).contiguous().view(B, T, C)
        return self.out_proj(out), (k, v)
