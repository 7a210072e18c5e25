"""Sliding-window attention, compact stand-alone version of the 7B-style block.

Every position looks at itself and the `sliding_window - 1` positions before it.
"""
from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import Tensor, nn


@dataclass
class RopeArgs:
    theta: float = 1e6
    max_positions: int = 1024


@dataclass
class TransformerArgs:
    dim: int = 256
    n_heads: int = 8
    n_kv_heads: int = 2
    head_dim: int = 32
    sliding_window: int = 6
    rope: RopeArgs = field(default_factory=RopeArgs)


def rope_table(head_dim: int, args: RopeArgs) -> Tensor:
    inv = args.theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    ang = torch.arange(args.max_positions, dtype=torch.float32)[:, None] * inv[None, :]
    return torch.stack([ang.cos(), ang.sin()], dim=-1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    # x: B T H D, table: [B] T D/2 2; neighbouring channels form a pair
    x1, x2 = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    c, s = table.unsqueeze(-3).unbind(-1)
    return torch.stack([x1 * c - x2 * s, x1 * s + x2 * c], dim=-1).flatten(-2).to(x.dtype)


class SlidingWindowAttention(nn.Module):
    def __init__(self, args: TransformerArgs):
        super().__init__()
        self.args = args
        self.n_heads = args.n_heads
        self.n_kv_heads = args.n_kv_heads
        self.head_dim = args.head_dim
        self.window = args.sliding_window
        self.scale = args.head_dim ** -0.5

        self.wq = nn.Linear(args.dim, args.n_heads * args.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.n_kv_heads * args.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.n_kv_heads * args.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * args.head_dim, args.dim, bias=False)
        self.register_buffer("rope", rope_table(args.head_dim, args.rope), persistent=False)

    def _blocked(self, t: int, device) -> Tensor:
        pos = torch.arange(t, device=device)
        dist = pos[:, None] - pos[None, :]
        return (dist < 0) | (dist >= self.window)

    def forward(self, x: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        b, t, _ = x.shape
        table = self.rope[:t] if positions is None else self.rope[positions]

        q = rotate(self.wq(x).view(b, t, self.n_heads, self.head_dim), table)
        k = rotate(self.wk(x).view(b, t, self.n_kv_heads, self.head_dim), table)
        v = self.wv(x).view(b, t, self.n_kv_heads, self.head_dim)

        # group the query heads instead of repeating the keys
        q = q.view(b, t, self.n_kv_heads, self.n_heads // self.n_kv_heads, self.head_dim)
        scores = torch.einsum("btgrd,bsgd->bgrts", q, k) * self.scale
        scores = scores.masked_fill(self._blocked(t, x.device), float("-inf"))
        probs = scores.float().softmax(-1).to(x.dtype)
        out = torch.einsum("bgrts,bsgd->btgrd", probs, v)
        return self.wo(out.reshape(b, t, -1))
