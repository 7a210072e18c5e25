from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn


@dataclass
class OlmoConfig:
    d_model: int = 512
    n_heads: int = 8
    n_kv_heads: Optional[int] = None
    include_bias: bool = False
    layer_norm_eps: float = 1e-6
    attention_dropout: float = 0.0
    rope_theta: int = 500_000

    @property
    def effective_n_kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads


class RMSLayerNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        og_dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(og_dtype)


class OlmoRotary(nn.Module):
    def __init__(self, head_dim: int, theta: float):
        super().__init__()
        self.head_dim = head_dim
        self.theta = theta

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # with a cache the queries are the last positions of the keys
        t, s = q.size(-2), k.size(-2)
        steps = torch.arange(0, self.head_dim, 2, device=q.device, dtype=torch.float)
        freqs = torch.outer(torch.arange(s, device=q.device, dtype=torch.float), self.theta ** -(steps / self.head_dim))
        pos = torch.cat((freqs, freqs), dim=-1)
        sin, cos = pos.sin(), pos.cos()
        q_, k_ = q.float(), k.float()
        q_ = q_ * cos[s - t :] + self.rotate_half(q_) * sin[s - t :]
        k_ = k_ * cos + self.rotate_half(k_) * sin
        return q_.type_as(q), k_.type_as(k)

    @staticmethod
    def rotate_half(x: torch.Tensor) -> torch.Tensor:
        x1, x2 = x.unflatten(-1, (2, -1)).unbind(dim=-2)
        return torch.cat((-x2, x1), dim=-1)


class OlmoAttention(nn.Module):
    """Queries and keys are normalised over all heads at once, ahead of the split."""

    def __init__(self, config: OlmoConfig):
        super().__init__()
        self.config = config
        self.head_dim = config.d_model // config.n_heads
        kv_dim = self.head_dim * config.effective_n_kv_heads
        self.fused_dims = (config.d_model, kv_dim, kv_dim)

        self.att_proj = nn.Linear(config.d_model, sum(self.fused_dims), bias=config.include_bias)
        self.attn_out = nn.Linear(config.d_model, config.d_model, bias=config.include_bias)
        self.q_norm = RMSLayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.k_norm = RMSLayerNorm(kv_dim, eps=config.layer_norm_eps)
        self.rotary_emb = OlmoRotary(self.head_dim, config.rope_theta)

    def forward(
        self,
        x: torch.Tensor,
        attention_bias: Optional[torch.Tensor] = None,
        layer_past: Optional[tuple[torch.Tensor, torch.Tensor]] = None,
        use_cache: bool = False,
    ) -> tuple[torch.Tensor, Optional[tuple[torch.Tensor, torch.Tensor]]]:
        B, T, C = x.size()
        q, k, v = self.att_proj(x).split(self.fused_dims, dim=-1)
        q, k = self.q_norm(q), self.k_norm(k)

        q = q.view(B, T, self.config.n_heads, self.head_dim).transpose(1, 2)
        k = k.view(B, T, self.config.effective_n_kv_heads, self.head_dim).transpose(1, 2)
        v = v.view(B, T, self.config.effective_n_kv_heads, self.head_dim).transpose(1, 2)

        if layer_past is not None:
            k = torch.cat((layer_past[0], k), dim=-2)
            v = torch.cat((layer_past[1], v), dim=-2)
        present = (k, v) if use_cache else None  # cached before rotation
        q, k = self.rotary_emb(q, k)

        rep = self.config.n_heads // self.config.effective_n_kv_heads
        if rep > 1:
            k, v = k.repeat_interleave(rep, dim=1), v.repeat_interleave(rep, dim=1)

        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        if attention_bias is not None:
            # float, 0 or -inf, broadcast over batch and heads
            att = att + attention_bias.to(att.dtype)
        att = torch.softmax(att, dim=-1)
        att = nn.functional.dropout(att, p=self.config.attention_dropout, training=self.training)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.attn_out(y), present
