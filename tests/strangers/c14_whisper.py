import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """Weights follow the dtype of the input, so a float32 checkpoint serves half precision audio."""

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.to(x.dtype) if self.bias is not None else None
        return F.linear(x, self.weight.to(x.dtype), bias)


def sinusoids(length, channels, max_timescale=10000):
    half = channels // 2
    rates = torch.exp(torch.arange(half) * (-math.log(max_timescale) / (half - 1)))
    angles = torch.outer(torch.arange(length).float(), rates)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def causal_mask(n_ctx):
    return torch.full((n_ctx, n_ctx), float("-inf")).triu_(1)


class MultiHeadAttention(nn.Module):
    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.d_head = n_state // n_head
        self.query = Linear(n_state, n_state)
        self.key = Linear(n_state, n_state, bias=False)
        self.value = Linear(n_state, n_state)
        self.out = Linear(n_state, n_state)

    def heads(self, t: Tensor) -> Tensor:
        return t.view(t.shape[0], t.shape[1], self.n_head, self.d_head).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, xa: Optional[Tensor] = None, mask: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """
        x: (batch, n_ctx, n_state)
        xa: encoded audio for cross attention
        mask: additive, (n_ctx, n_ctx) or larger; self attention only
        Returns the output and the scores (word timing is read off the latter).
        """
        memory = x if xa is None else xa

        # a part of the scale on either side keeps the product in range of float16
        scale = self.d_head ** -0.25
        q = self.heads(self.query(x)) * scale
        k = self.heads(self.key(memory)) * scale
        v = self.heads(self.value(memory))

        qk = torch.einsum("bhqd,bhkd->bhqk", q, k)
        if mask is not None:
            n_ctx = x.shape[1]
            qk = qk + mask[:n_ctx, :n_ctx]
        qk = qk.float()

        w = F.softmax(qk, dim=-1).to(v.dtype)
        wv = torch.einsum("bhqk,bhkd->bqhd", w, v).flatten(2)
        return self.out(wv), qk.detach()


class DecoderBlock(nn.Module):
    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.attn_ln = nn.LayerNorm(n_state)
        self.attn = MultiHeadAttention(n_state, n_head)
        self.cross_attn_ln = nn.LayerNorm(n_state)
        self.cross_attn = MultiHeadAttention(n_state, n_head)
        self.mlp_ln = nn.LayerNorm(n_state)
        self.mlp = nn.Sequential(Linear(n_state, 4 * n_state), nn.GELU(), Linear(4 * n_state, n_state))

    def forward(self, x: Tensor, xa: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        y, _ = self.attn(self.attn_ln(x), mask=mask)
        x = x + y
        y, _ = self.cross_attn(self.cross_attn_ln(x), xa)
        x = x + y
        return x + self.mlp(self.mlp_ln(x))
