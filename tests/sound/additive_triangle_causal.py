"""Lecture-notes style: causal multi-head self-attention, bias-free separate projections. There is no mask argument;
an additive triangle (0 on and below the diagonal, -inf above it) is built on every call. Causal by construction, so
every row may at least look at itself and a row without an allowed key cannot occur. x is (N, T, D), so is the result.
"""

import torch
from torch import nn
from torch.nn import functional as F


class CausalAttention(nn.Module):
    def __init__(self, emb, heads):
        super().__init__()
        if emb % heads != 0:
            raise ValueError("emb must be divisible by heads")
        self.heads = heads
        self.to_q = nn.Linear(emb, emb, bias=False)
        self.to_k = nn.Linear(emb, emb, bias=False)
        self.to_v = nn.Linear(emb, emb, bias=False)
        self.unify = nn.Linear(emb, emb, bias=False)

    def forward(self, x):
        b, t, e = x.shape
        h, s = self.heads, e // self.heads

        # fold the heads into the batch dimension
        q = self.to_q(x).view(b, t, h, s).transpose(1, 2).reshape(b * h, t, s)
        k = self.to_k(x).view(b, t, h, s).transpose(1, 2).reshape(b * h, t, s)
        v = self.to_v(x).view(b, t, h, s).transpose(1, 2).reshape(b * h, t, s)

        # a fourth root on either side is the square root on the product, and keeps the numbers small
        dot = torch.bmm(q / s**0.25, (k / s**0.25).transpose(1, 2))
        dot = dot + torch.full((t, t), float("-inf"), dtype=dot.dtype, device=dot.device).triu(diagonal=1)

        y = torch.bmm(F.softmax(dot, dim=2), v)
        y = y.view(b, h, t, s).transpose(1, 2).reshape(b, t, e)
        return self.unify(y)
