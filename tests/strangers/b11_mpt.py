import math
from dataclasses import dataclass, field
from typing import Optional

import torch
import torch.nn as nn
from torch import Tensor


@dataclass
class AttnConfig:
    attn_pdrop: float = 0.0
    clip_qkv: Optional[float] = None
    softmax_scale: Optional[float] = None
    alibi: bool = True
    alibi_bias_max: int = 8


@dataclass
class MPTConfig:
    d_model: int = 384
    n_heads: int = 6
    max_seq_len: int = 512
    no_bias: bool = True
    attn_config: AttnConfig = field(default_factory=AttnConfig)


def gen_slopes(n_heads: int, alibi_bias_max: int = 8) -> Tensor:
    padded = 2 ** math.ceil(math.log2(n_heads))
    m = torch.arange(1, padded + 1, dtype=torch.float32) * (alibi_bias_max / padded)
    slopes = 1.0 / torch.pow(2, m)
    if padded != n_heads:
        # not a power of two: take every other slope first
        slopes = torch.cat([slopes[1::2], slopes[::2]])[:n_heads]
    return slopes.view(1, n_heads, 1, 1)


def build_alibi_bias(n_heads: int, seq_len: int, alibi_bias_max: int = 8) -> Tensor:
    # one row is enough under a causal mask: a constant per query drops out of the softmax
    dist = torch.arange(1 - seq_len, 1, dtype=torch.float32).view(1, 1, 1, seq_len)
    return dist * gen_slopes(n_heads, alibi_bias_max)


class MultiheadAttention(nn.Module):
    """Causal self attention, fused Wqkv, position information only through ALiBi."""

    def __init__(self, config: MPTConfig):
        super().__init__()
        ac = config.attn_config
        self.d_model = config.d_model
        self.n_heads = config.n_heads
        self.head_dim = config.d_model // config.n_heads
        self.clip_qkv = ac.clip_qkv
        self.softmax_scale = ac.softmax_scale
        if self.softmax_scale is None:
            self.softmax_scale = 1 / math.sqrt(self.head_dim)
        self.attn_dropout_p = ac.attn_pdrop

        self.Wqkv = nn.Linear(self.d_model, 3 * self.d_model, bias=not config.no_bias)
        self.out_proj = nn.Linear(self.d_model, self.d_model, bias=not config.no_bias)

        bias = build_alibi_bias(config.n_heads, config.max_seq_len, ac.alibi_bias_max) if ac.alibi else None
        self.register_buffer("attn_bias", bias, persistent=False)

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        needs_weights: bool = False,
    ):
        """
        x: (batch, seq, d_model)
        key_padding_mask: bool (batch, seq), True for tokens that count
        """
        b, s, _ = x.shape
        qkv = self.Wqkv(x)
        if self.clip_qkv:
            qkv = qkv.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        q, k, v = qkv.chunk(3, dim=2)

        q = q.view(b, s, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
        k = k.view(b, s, self.n_heads, self.head_dim).permute(0, 2, 3, 1)  # already transposed
        v = v.view(b, s, self.n_heads, self.head_dim).permute(0, 2, 1, 3)

        attn_weight = q.matmul(k) * self.softmax_scale
        if self.attn_bias is not None:
            attn_weight = attn_weight + self.attn_bias[..., -s:].to(attn_weight.dtype)

        min_val = torch.finfo(attn_weight.dtype).min
        if key_padding_mask is not None:
            attn_weight = attn_weight.masked_fill(~key_padding_mask.bool()[:, None, None, :], min_val)
        causal_mask = attn_weight.new_ones(s, s, dtype=torch.bool).triu(1)
        attn_weight = attn_weight.masked_fill(causal_mask, min_val)

        attn_weight = torch.softmax(attn_weight, dim=-1)
        if self.attn_dropout_p:
            attn_weight = nn.functional.dropout(attn_weight, p=self.attn_dropout_p, training=self.training)

        out = attn_weight.matmul(v).permute(0, 2, 1, 3).reshape(b, s, self.d_model)
        return self.out_proj(out), attn_weight if needs_weights else None
