"""Multi-head latent attention: keys and values are rebuilt from a small shared latent."""
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class MLAConfig:
    dim: int = 512
    n_heads: int = 8
    q_lora_rank: int = 0          # 0: queries straight from the input
    kv_lora_rank: int = 96
    qk_nope_head_dim: int = 48
    qk_rope_head_dim: int = 16
    v_head_dim: int = 40
    rope_theta: float = 10000.0
    eps: float = 1e-6


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor):
        return F.rms_norm(x, (self.dim,), self.weight, self.eps)


def apply_rotary_emb(x: torch.Tensor, theta: float) -> torch.Tensor:
    """x: (batch, seq, heads, rope_dim), neighbouring channels are rotated together."""
    t, d = x.shape[1], x.shape[-1]
    inv = theta ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    ang = torch.outer(torch.arange(t, device=x.device, dtype=torch.float32), inv)
    cis = torch.polar(torch.ones_like(ang), ang).view(1, t, 1, d // 2)
    y = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * cis
    return torch.view_as_real(y).flatten(3).to(x.dtype)


class MLA(nn.Module):
    def __init__(self, args: MLAConfig):
        super().__init__()
        self.n_heads = args.n_heads
        self.q_lora_rank = args.q_lora_rank
        self.kv_lora_rank = args.kv_lora_rank
        self.nope, self.rope = args.qk_nope_head_dim, args.qk_rope_head_dim
        self.qk_head_dim = self.nope + self.rope
        self.v_head_dim = args.v_head_dim
        self.theta = args.rope_theta

        if self.q_lora_rank == 0:
            self.wq = nn.Linear(args.dim, self.n_heads * self.qk_head_dim, bias=False)
        else:
            self.wq_a = nn.Linear(args.dim, args.q_lora_rank, bias=False)
            self.q_norm = RMSNorm(args.q_lora_rank, args.eps)
            self.wq_b = nn.Linear(args.q_lora_rank, self.n_heads * self.qk_head_dim, bias=False)
        # the latent, and one rotary key for all heads beside it
        self.wkv_a = nn.Linear(args.dim, self.kv_lora_rank + self.rope, bias=False)
        self.kv_norm = RMSNorm(self.kv_lora_rank, args.eps)
        self.wkv_b = nn.Linear(self.kv_lora_rank, self.n_heads * (self.nope + self.v_head_dim), bias=False)
        self.wo = nn.Linear(self.n_heads * self.v_head_dim, args.dim, bias=False)
        self.softmax_scale = self.qk_head_dim ** -0.5

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """mask: float (batch, 1, seq, seq) or (1, 1, seq, seq), added to the scores; causality is built in."""
        bsz, seqlen, _ = x.shape
        q = self.wq(x) if self.q_lora_rank == 0 else self.wq_b(self.q_norm(self.wq_a(x)))
        q = q.view(bsz, seqlen, self.n_heads, self.qk_head_dim)
        q_nope, q_pe = q.split([self.nope, self.rope], dim=-1)
        q_pe = apply_rotary_emb(q_pe, self.theta)

        kv, k_pe = self.wkv_a(x).split([self.kv_lora_rank, self.rope], dim=-1)
        k_pe = apply_rotary_emb(k_pe.unsqueeze(2), self.theta).squeeze(2)
        kv = self.wkv_b(self.kv_norm(kv)).view(bsz, seqlen, self.n_heads, self.nope + self.v_head_dim)
        k_nope, v = kv.split([self.nope, self.v_head_dim], dim=-1)

        scores = torch.einsum("bshd,bthd->bhst", q_nope, k_nope) + torch.einsum("bshr,btr->bhst", q_pe, k_pe)
        scores = scores * self.softmax_scale

        future = torch.ones(seqlen, seqlen, dtype=torch.bool, device=x.device).triu(1)
        if mask is None:
            mask = torch.zeros(1, 1, seqlen, seqlen, dtype=scores.dtype, device=x.device)
        mask = mask.masked_fill(future, torch.finfo(mask.dtype).min)
        scores = (scores + mask).softmax(dim=-1, dtype=torch.float32).type_as(x)

        out = torch.einsum("bhst,bthd->bshd", scores, v)
        return self.wo(out.flatten(2))
