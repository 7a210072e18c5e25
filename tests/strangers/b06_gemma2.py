# Gemma 2 attention, in the style of the plain pytorch port: soft-capped logits and
# a query scale that does not follow the head size.
import dataclasses
from typing import Optional

import torch
from torch import nn
import torch.nn.functional as F


@dataclasses.dataclass
class GemmaConfig:
    hidden_size: int = 768
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 128
    query_pre_attn_scalar: Optional[int] = 192
    attn_logit_softcapping: Optional[float] = 50.0
    max_position_embeddings: int = 2048


def compute_freqs(dim: int, end: int, theta: float = 10000.0) -> torch.Tensor:
    inv = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    t = torch.arange(end).float()
    freqs = torch.outer(t, inv)
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary(x: torch.Tensor, freqs_cis: torch.Tensor) -> torch.Tensor:
    """x is [batch, heads, len, dim]; first and second half make up one complex number."""
    z = torch.complex(*torch.chunk(x.float(), 2, dim=-1))
    z = z * freqs_cis
    return torch.cat([z.real, z.imag], dim=-1).type_as(x)


class GemmaAttention(nn.Module):

    def __init__(self, config: GemmaConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        assert self.num_heads % self.num_kv_heads == 0
        self.num_queries_per_kv = self.num_heads // self.num_kv_heads
        self.head_dim = config.head_dim

        self.q_size = self.num_heads * self.head_dim
        self.kv_size = self.num_kv_heads * self.head_dim

        if config.query_pre_attn_scalar is not None:
            self.scaling = config.query_pre_attn_scalar ** -0.5
        else:
            self.scaling = self.head_dim ** -0.5
        self.attn_logit_softcapping = config.attn_logit_softcapping

        self.qkv_proj = nn.Linear(config.hidden_size, self.q_size + 2 * self.kv_size, bias=False)
        self.o_proj = nn.Linear(self.q_size, config.hidden_size, bias=False)

        freqs = compute_freqs(self.head_dim, config.max_position_embeddings)
        self.register_buffer("freqs_cos", freqs.real.contiguous(), persistent=False)
        self.register_buffer("freqs_sin", freqs.imag.contiguous(), persistent=False)

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """mask: [batch or 1, 1, len, len], 0 where a query may look, very negative elsewhere."""
        assert hidden_states.dim() == 3
        batch_size, input_len, _ = hidden_states.shape

        qkv = self.qkv_proj(hidden_states)
        xq, xk, xv = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        xq = xq.view(batch_size, input_len, self.num_heads, self.head_dim).transpose(1, 2)
        xk = xk.view(batch_size, input_len, self.num_kv_heads, self.head_dim).transpose(1, 2)
        xv = xv.view(batch_size, input_len, self.num_kv_heads, self.head_dim).transpose(1, 2)

        freqs_cis = torch.complex(self.freqs_cos[:input_len].float(), self.freqs_sin[:input_len].float())
        xq = apply_rotary(xq, freqs_cis)
        xk = apply_rotary(xk, freqs_cis)

        if self.num_kv_heads != self.num_heads:
            xk = torch.repeat_interleave(xk, self.num_queries_per_kv, dim=1)
            xv = torch.repeat_interleave(xv, self.num_queries_per_kv, dim=1)

        xq = xq * self.scaling
        scores = torch.matmul(xq, xk.transpose(2, 3))
        if self.attn_logit_softcapping is not None:
            scores = scores / self.attn_logit_softcapping
            scores = torch.tanh(scores)
            scores = scores * self.attn_logit_softcapping
        scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)

        output = torch.matmul(scores, xv)
        output = output.transpose(1, 2).contiguous().view(batch_size, input_len, -1)
        return self.o_proj(output)
