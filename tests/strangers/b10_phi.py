"""Phi-style self attention on top of scaled_dot_product_attention."""

from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class PhiConfig:
    hidden_size: int = 640
    num_attention_heads: int = 10
    partial_rotary_factor: float = 0.5
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 1024
    attention_dropout: float = 0.1
    qk_layernorm: bool = True
    layer_norm_eps: float = 1e-5


class PhiRotaryEmbedding(nn.Module):
    def __init__(self, dim: int, max_len: int, base: float):
        super().__init__()
        self.dim = dim
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        t = torch.arange(max_len).float()
        emb = torch.outer(t, inv_freq).repeat(1, 2)
        self.register_buffer("cos_cached", emb.cos(), persistent=False)
        self.register_buffer("sin_cached", emb.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[-2]
        x_rot, x_pass = x[..., : self.dim], x[..., self.dim :]
        a, b = x_rot.chunk(2, dim=-1)
        turned = torch.cat((-b, a), dim=-1)
        cos = self.cos_cached[:n].to(x.dtype)
        sin = self.sin_cached[:n].to(x.dtype)
        return torch.cat((x_rot * cos + turned * sin, x_pass), dim=-1)


class PhiAttention(nn.Module):
    """All projections have biases; the one on the way out is called `dense`."""

    def __init__(self, config: PhiConfig, layer_idx: Optional[int] = None):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.attention_dropout = config.attention_dropout

        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=True)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=True)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=True)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=True)
        if config.qk_layernorm:
            self.q_layernorm = nn.LayerNorm(self.head_dim, eps=config.layer_norm_eps)
            self.k_layernorm = nn.LayerNorm(self.head_dim, eps=config.layer_norm_eps)
        else:
            self.q_layernorm = self.k_layernorm = nn.Identity()
        self.rotary_emb = PhiRotaryEmbedding(
            int(config.partial_rotary_factor * self.head_dim),
            config.max_position_embeddings,
            config.rope_theta,
        )

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """attention_mask: additive, broadcastable to (batch, 1, len, len). Causal if left out."""
        bsz, q_len, dim = hidden_states.size()

        def heads(t):
            return t.view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)

        query = self.rotary_emb(self.q_layernorm(heads(self.q_proj(hidden_states))))
        key = self.rotary_emb(self.k_layernorm(heads(self.k_proj(hidden_states))))
        value = heads(self.v_proj(hidden_states))

        if attention_mask is not None:
            attention_mask = attention_mask.to(query.dtype)

        attn_output = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=attention_mask is None,
        )
        attn_output = attn_output.transpose(1, 2).reshape(bsz, q_len, dim)
        return self.dense(attn_output)
