from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn


@dataclass
class Gemma2Config:
    hidden_size: int = 24
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 8
    query_pre_attn_scalar: float = 16.0
    attn_logit_softcapping: Optional[float] = 20.0
    sliding_window: Optional[int] = None


class Gemma2Attention(nn.Module):
    """Causal. Scores are scaled by query_pre_attn_scalar ** -0.5 and then squashed by cap * tanh(s / cap)."""

    def __init__(self, config: Gemma2Config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.num_queries_per_kv = self.num_heads // self.num_kv_heads
        self.head_dim = config.head_dim
        self.scaling = config.query_pre_attn_scalar ** -0.5
        self.softcap = config.attn_logit_softcapping
        self.sliding_window = config.sliding_window
        self.q_size = self.num_heads * self.head_dim
        self.kv_size = self.num_kv_heads * self.head_dim
        self.qkv_proj = nn.Linear(config.hidden_size, self.q_size + 2 * self.kv_size, bias=False)
        self.o_proj = nn.Linear(self.q_size, config.hidden_size, bias=False)

    def forward(self, hidden_states: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """mask: bool, broadcastable to (batch, 1, seq, seq), True = may attend; causality is added here."""
        batch, seq, _ = hidden_states.shape
        qkv = self.qkv_proj(hidden_states)
        xq, xk, xv = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        xq = xq.view(batch, seq, self.num_heads, self.head_dim)
        xk = xk.view(batch, seq, self.num_kv_heads, self.head_dim)
        xv = xv.view(batch, seq, self.num_kv_heads, self.head_dim)
        if self.num_kv_heads != self.num_heads:
            xk = torch.repeat_interleave(xk, self.num_queries_per_kv, dim=2)
            xv = torch.repeat_interleave(xv, self.num_queries_per_kv, dim=2)

        q, k, v = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        scores = torch.matmul(q * self.scaling, k.transpose(2, 3))
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)

        ones = torch.ones(seq, seq, dtype=torch.bool, device=scores.device)
        allowed = ones.tril()
        if self.sliding_window is not None:
            allowed = allowed & ones.triu(1 - self.sliding_window)
        allowed = allowed[None, None]
        if mask is not None:
            allowed = allowed & mask
        scores = torch.where(allowed, scores, torch.full_like(scores, torch.finfo(scores.dtype).min))
        probs = scores.float().softmax(dim=-1).type_as(q)
        output = torch.matmul(probs, v).transpose(1, 2).reshape(batch, seq, -1)
        return self.o_proj(output)
