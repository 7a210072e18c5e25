"""Research-code style: self-attention as four einsums over raw 3-D parameters (heads, dim, head_dim), no nn.Linear and
no biases. The mask is a boolean token mask (N, T), True = allowed (a real token); it hides keys from all queries and
heads and leaves the queries alone. If a sample has no allowed key, its rows get zero weights and a zero output. Not
causal by construction. Batch first, (N, T, dim) in, one tensor (N, T, dim) out.
"""

import torch
from torch import Tensor, einsum, nn


class EinsumAttention(nn.Module):
    def __init__(self, dim: int, heads: int = 8, head_dim: int = 64):
        super().__init__()
        self.scale = head_dim**-0.5
        self.w_q = nn.Parameter(torch.empty(heads, dim, head_dim))
        self.w_k = nn.Parameter(torch.empty(heads, dim, head_dim))
        self.w_v = nn.Parameter(torch.empty(heads, dim, head_dim))
        self.w_o = nn.Parameter(torch.empty(heads, head_dim, dim))
        self.reset_parameters()

    def reset_parameters(self):
        heads, dim, head_dim = self.w_q.shape
        for w in (self.w_q, self.w_k, self.w_v):
            nn.init.normal_(w, std=dim**-0.5)
        nn.init.normal_(self.w_o, std=(heads * head_dim) ** -0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = einsum("bid,hdc->bhic", x, self.w_q) * self.scale
        k = einsum("bjd,hdc->bhjc", x, self.w_k)
        v = einsum("bjd,hdc->bhjc", x, self.w_v)

        sim = einsum("bhic,bhjc->bhij", q, k)
        if mask is None:
            attn = sim.softmax(dim=-1)
        else:
            if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
                raise ValueError("mask must be boolean with shape (batch, tokens)")
            hidden = ~mask[:, None, None, :]
            sim = sim.masked_fill(hidden, torch.finfo(sim.dtype).min)
            attn = sim.softmax(dim=-1).masked_fill(hidden, 0)

        return einsum("bhij,bhjc,hcd->bid", attn, v, self.w_o)
