from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class MupConfig:
    d_model: int = 32
    n_heads: int = 4
    attn_dropout: float = 0.0
    attn_mult: float = 1.0


class MupCausalAttention(nn.Module):
    """Causal attention in the maximal update parametrisation: logits are scaled by attn_mult / d_head
    instead of 1 / sqrt(d_head)."""

    def __init__(self, cfg: MupConfig):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.d_head = cfg.d_model // cfg.n_heads
        self.scale = cfg.attn_mult / self.d_head
        self.q_proj = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.k_proj = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.v_proj = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.out_proj = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.attn_dropout = nn.Dropout(cfg.attn_dropout)

    def _split(self, t):
        return t.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self._split(self.q_proj(x)), self._split(self.k_proj(x)), self._split(self.v_proj(x))
        if torch.is_grad_enabled():
            logits = torch.matmul(q, k.transpose(-2, -1)) * self.scale
            future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
            attn = self.attn_dropout(logits.masked_fill(future, float("-inf")).softmax(dim=-1))
            y = torch.matmul(attn, v)
        else:
            # generation: fused kernel
            p = self.attn_dropout.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))
