from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        dtype = hidden_states.dtype
        h = hidden_states.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.to(dtype) * self.weight


class Attention(nn.Module):
    r"""
    Attention layer of a diffusion transformer with grouped key/value heads.

    Parameters:
        query_dim (`int`): channels of the query.
        cross_attention_dim (`int`, *optional*): channels of `encoder_hidden_states`, `query_dim` if not given.
        heads (`int`, *optional*, defaults to 8): query heads.
        kv_heads (`int`, *optional*, defaults to 2): key/value heads, each shared by `heads // kv_heads` query heads.
        dim_head (`int`, *optional*, defaults to 32): channels per head.
        dropout (`float`, *optional*, defaults to 0.0): dropout after the output projection.
        bias (`bool`, *optional*, defaults to `False`): bias of the input projections.
        qk_norm (`str`, *optional*, defaults to `"rms_norm"`): normalization of queries and keys or `None`.
        rescale_output_factor (`float`, *optional*, defaults to 1.0): divisor of the output.
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: Optional[int] = None,
        heads: int = 8,
        kv_heads: int = 2,
        dim_head: int = 32,
        dropout: float = 0.0,
        bias: bool = False,
        qk_norm: Optional[str] = "rms_norm",
        rescale_output_factor: float = 1.0,
        out_bias: bool = True,
    ):
        super().__init__()
        self.inner_dim = dim_head * heads
        self.inner_kv_dim = dim_head * kv_heads
        self.heads = heads
        self.kv_heads = kv_heads
        self.scale = dim_head**-0.5
        self.rescale_output_factor = rescale_output_factor
        kv_dim = cross_attention_dim if cross_attention_dim is not None else query_dim

        if qk_norm is None:
            self.norm_q = self.norm_k = None
        elif qk_norm == "rms_norm":
            self.norm_q = RMSNorm(dim_head)
            self.norm_k = RMSNorm(dim_head)
        else:
            raise ValueError(f"unknown qk_norm: {qk_norm}")

        self.to_q = nn.Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = nn.Linear(kv_dim, self.inner_kv_dim, bias=bias)
        self.to_v = nn.Linear(kv_dim, self.inner_kv_dim, bias=bias)
        self.to_out = nn.ModuleList([nn.Linear(self.inner_dim, query_dim, bias=out_bias), nn.Dropout(dropout)])

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: Optional[torch.Tensor] = None,
        attention_mask: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        # attention_mask: additive bias, (batch, 1, key_tokens) or (batch, query_tokens, key_tokens)
        batch_size = hidden_states.shape[0]
        if encoder_hidden_states is None:
            encoder_hidden_states = hidden_states

        query = self.to_q(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key = self.to_k(encoder_hidden_states).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        value = self.to_v(encoder_hidden_states).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)

        if self.norm_q is not None:
            query = self.norm_q(query)
            key = self.norm_k(key)

        n_rep = self.heads // self.kv_heads
        if n_rep > 1:
            key = key.repeat_interleave(n_rep, dim=1)
            value = value.repeat_interleave(n_rep, dim=1)

        if attention_mask is not None:
            attention_mask = attention_mask.to(query.dtype).unsqueeze(1)

        hidden_states = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=self.scale)
        hidden_states = hidden_states.transpose(1, 2).reshape(batch_size, -1, self.inner_dim)

        for module in self.to_out:
            hidden_states = module(hidden_states)
        return hidden_states / self.rescale_output_factor


class AdaLayerNormZero(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.linear = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x, temb):
        shift, scale, gate = self.linear(F.silu(temb)).unsqueeze(1).chunk(3, dim=-1)
        return self.norm(x) * (1 + scale) + shift, gate
