from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

QWEN3_0_6B = SimpleNamespace(
    hidden_size=1024,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,          # wider than hidden_size // heads in this family
    rms_norm_eps=1e-6,
    attention_bias=False,
    sliding_window=None,
)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rope(x, cos, sin):
    """x (B, H, T, D); cos and sin (B, T, D) as the model's rotary module makes them."""
    cos, sin = cos[:, None], sin[:, None]
    lo, hi = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return (x * cos) + (torch.cat((-hi, lo), dim=-1) * sin)


class Qwen3Attention(nn.Module):
    def __init__(self, config=QWEN3_0_6B, layer_idx: int = 0):
        super().__init__()
        self.layer_idx = layer_idx
        self.n_heads = config.num_attention_heads
        self.n_kv = config.num_key_value_heads
        self.head_dim = config.head_dim
        self.scaling = self.head_dim ** -0.5

        d, b = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(d, self.n_heads * self.head_dim, bias=b)
        self.k_proj = nn.Linear(d, self.n_kv * self.head_dim, bias=b)
        self.v_proj = nn.Linear(d, self.n_kv * self.head_dim, bias=b)
        self.o_proj = nn.Linear(self.n_heads * self.head_dim, d, bias=b)
        # normalised over the head dimension only, one weight shared by all heads
        self.q_norm = RMSNorm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def forward(self, hidden_states, attention_mask=None, position_embeddings=None):
        B, T, _ = hidden_states.shape
        q = self.q_norm(self.q_proj(hidden_states).view(B, T, self.n_heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden_states).view(B, T, self.n_kv, self.head_dim)).transpose(1, 2)
        v = self.v_proj(hidden_states).view(B, T, self.n_kv, self.head_dim).transpose(1, 2)

        if position_embeddings is not None:
            cos, sin = position_embeddings
            q, k = rope(q, cos, sin), rope(k, cos, sin)

        groups = self.n_heads // self.n_kv
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)

        weights = torch.matmul(q, k.mT) * self.scaling
        if attention_mask is not None:
            weights = weights + attention_mask
        weights = weights.softmax(dim=-1, dtype=torch.float32).to(v.dtype)
        out = torch.matmul(weights, v).transpose(1, 2).reshape(B, T, -1)
        return self.o_proj(out), weights
