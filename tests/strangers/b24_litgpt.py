import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn


@dataclass
class Config:
    name: str = ""
    block_size: int = 512
    n_layer: int = 4
    n_embd: int = 384
    n_head: int = 6
    head_size: Optional[int] = None
    n_query_groups: Optional[int] = None
    rotary_percentage: float = 0.25
    rope_base: int = 10000
    bias: bool = True
    attention_scores_scalar: Optional[int] = None

    def __post_init__(self):
        if self.head_size is None:
            assert self.n_embd % self.n_head == 0
            self.head_size = self.n_embd // self.n_head
        if self.n_query_groups is None:
            self.n_query_groups = self.n_head
        assert self.n_head % self.n_query_groups == 0
        self.rope_n_elem = int(self.rotary_percentage * self.head_size)


def build_rope_cache(seq_len: int, n_elem: int, device=None, base: int = 10000):
    """cos and sin, both (seq_len, n_elem)."""
    theta = 1.0 / (base ** (torch.arange(0, n_elem, 2, device=device).float() / n_elem))
    idx_theta = torch.outer(torch.arange(seq_len, device=device).float(), theta).repeat(1, 2)
    return torch.cos(idx_theta), torch.sin(idx_theta)


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.size(-1) // 2
    x1 = x[..., :half]  # (B, nh, T, n_elem/2)
    x2 = x[..., half:]
    rotated = torch.cat((-x2, x1), dim=-1)
    return ((x * cos) + (rotated * sin)).to(dtype=x.dtype)


class KVCache(nn.Module):
    def __init__(self, shape, device=None, dtype=None):
        super().__init__()
        self.register_buffer("k", torch.zeros(shape, device=device, dtype=dtype), persistent=False)
        self.register_buffer("v", torch.zeros(shape, device=device, dtype=dtype), persistent=False)

    def forward(self, input_pos, k, v):
        n = k.size(0)
        self.k[:n].index_copy_(2, input_pos, k.to(self.k.dtype))
        self.v[:n].index_copy_(2, input_pos, v.to(self.v.dtype))
        return self.k[:n], self.v[:n]


class CausalSelfAttention(nn.Module):
    def __init__(self, config: Config, block_idx: int = 0) -> None:
        super().__init__()
        # key, query and value projections for all heads in one matrix, group by group
        shape = (config.n_head + 2 * config.n_query_groups) * config.head_size
        self.attn = nn.Linear(config.n_embd, shape, bias=config.bias)
        self.proj = nn.Linear(config.head_size * config.n_head, config.n_embd, bias=config.bias)
        # off by default, see build_kv_cache
        self.kv_cache: Optional[KVCache] = None
        self.config = config
        self.block_idx = block_idx

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: Optional[torch.Tensor] = None,
        input_pos: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        B, T, _ = x.size()
        cfg = self.config

        qkv = self.attn(x)
        q_per_kv = cfg.n_head // cfg.n_query_groups
        qkv = qkv.view(B, T, cfg.n_query_groups, q_per_kv + 2, cfg.head_size)
        qkv = qkv.permute(0, 2, 3, 1, 4)  # (B, n_query_groups, total_qkv, T, hs)
        q, k, v = qkv.split((q_per_kv, 1, 1), dim=2)

        q = q.reshape(B, -1, T, cfg.head_size)  # (B, nh_q, T, hs)
        k = k.reshape(B, -1, T, cfg.head_size)  # (B, nh_k, T, hs)
        v = v.reshape(B, -1, T, cfg.head_size)  # (B, nh_v, T, hs)

        n_elem = cfg.rope_n_elem
        q = torch.cat((apply_rope(q[..., :n_elem], cos, sin), q[..., n_elem:]), dim=-1)
        k = torch.cat((apply_rope(k[..., :n_elem], cos, sin), k[..., n_elem:]), dim=-1)

        if input_pos is not None:
            if self.kv_cache is None:
                raise TypeError("build_kv_cache() has to come before the first call with input_pos")
            k, v = self.kv_cache(input_pos, k, v)

        y = self.scaled_dot_product_attention(q, k, v, mask)
        return self.proj(y.reshape(B, T, cfg.head_size * cfg.n_head))

    def scaled_dot_product_attention(self, q, k, v, mask=None):
        # mask: bool, True = takes part; without one the call is causal
        scale = 1.0 / math.sqrt(self.config.attention_scores_scalar or self.config.head_size)
        y = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=0.0, scale=scale, is_causal=mask is None,
            enable_gqa=q.size(1) != k.size(1),
        )
        return y.transpose(1, 2)

    def build_kv_cache(self, batch_size: int, max_seq_length: int, device=None, dtype=None) -> None:
        shape = (batch_size, self.config.n_query_groups, max_seq_length, self.config.head_size)
        self.kv_cache = KVCache(shape, device, dtype)
