"""Attention for the decoder, built from the run config."""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class AttnConfig:
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    rope_theta: float = 10000.0
    use_sinks: bool = True
    dropout: float = 0.0


@dataclass
class ModelConfig:
    width: int = 64
    attn: AttnConfig = field(default_factory=AttnConfig)


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class Rope(nn.Module):
    def __init__(self, dim, theta):
        super().__init__()
        self.register_buffer("inv_freq", theta ** (-torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, q, k, positions):
        ang = positions[..., None].float() * self.inv_freq.float()
        ang = torch.cat((ang, ang), dim=-1).unsqueeze(-3)  # (N or 1, 1, T, d)
        cos, sin = ang.cos().to(q.dtype), ang.sin().to(q.dtype)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class GroupedAttention(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        a = cfg.model.attn
        assert a.n_heads % a.n_kv_heads == 0
        self.h, self.g, self.d = a.n_heads, a.n_kv_heads, a.head_dim
        self.p_drop = a.dropout
        self.q = nn.Linear(cfg.model.width, self.h * self.d, bias=False)
        self.kv = nn.Linear(cfg.model.width, 2 * self.g * self.d, bias=False)
        self.o = nn.Linear(self.h * self.d, cfg.model.width, bias=False)
        self.rope = Rope(self.d, a.rope_theta)
        self.sinks = nn.Parameter(torch.randn(self.h)) if a.use_sinks else None

    def forward(self, x, positions=None, attn_mask=None):
        """x (N, T, C); positions (N, T) ints; attn_mask (N, 1, T, T) bool, True may look. Always causal."""
        N, T, _ = x.shape
        if positions is None:
            positions = torch.arange(T, device=x.device)[None]
        q = self.q(x).view(N, T, self.h, self.d).transpose(1, 2)
        k, v = self.kv(x).view(N, T, 2, self.g, self.d).permute(2, 0, 3, 1, 4)
        q, k = self.rope(q, k, positions)
        k = k.repeat_interleave(self.h // self.g, dim=1)
        v = v.repeat_interleave(self.h // self.g, dim=1)

        s = (q @ k.mT) * self.d ** -0.5
        allowed = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        if attn_mask is not None:
            allowed = allowed & attn_mask
        s = s.masked_fill(~allowed, torch.finfo(s.dtype).min)
        if self.sinks is not None:
            sink = self.sinks.to(s.dtype).view(1, -1, 1, 1).expand(N, -1, T, 1)
            p = torch.cat((s, sink), dim=-1).softmax(dim=-1)[..., :-1]
        else:
            p = s.softmax(dim=-1)
        p = F.dropout(p, self.p_drop, self.training)
        return self.o((p @ v).transpose(1, 2).reshape(N, T, -1))


def build_attention(cfg: Config | None = None) -> nn.Module:
    cfg = Config() if cfg is None else cfg
    return GroupedAttention(cfg)
