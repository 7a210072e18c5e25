"""TorchScript-friendly attention for the serving build.

torch.jit.script(MultiHeadAttn(256, 8)) must keep working: no **kwargs, no lambdas, every
optional spelled out.
"""
import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttn(nn.Module):
    __constants__ = ["size", "n_head", "d_k", "dropout"]

    def __init__(self, size: int, n_head: int, dropout: float = 0.0):
        super().__init__()
        if size % n_head != 0:
            raise ValueError("size must be divisible by n_head")
        self.size = size
        self.n_head = n_head
        self.d_k = size // n_head
        self.dropout = dropout
        self.q_weight = nn.Parameter(torch.empty(size, size))
        self.q_bias = nn.Parameter(torch.empty(size))
        self.k_weight = nn.Parameter(torch.empty(size, size))
        self.k_bias = nn.Parameter(torch.empty(size))
        self.v_weight = nn.Parameter(torch.empty(size, size))
        self.v_bias = nn.Parameter(torch.empty(size))
        self.o_weight = nn.Parameter(torch.empty(size, size))
        self.o_bias = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.size)
        for p in self.parameters():
            nn.init.uniform_(p, -bound, bound)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.n_head, self.d_k).transpose(1, 2)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Tensor]:
        """mask: bool [batch, query, key], True is masked. Returns the output and the mean weights."""
        q = self.split(F.linear(query, self.q_weight, self.q_bias))
        k = self.split(F.linear(key, self.k_weight, self.k_bias))
        v = self.split(F.linear(value, self.v_weight, self.v_bias))

        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1), float("-inf"))
        attn = torch.softmax(scores, dim=-1)
        p = F.dropout(attn, self.dropout, self.training)

        y = torch.matmul(p, v).transpose(1, 2).contiguous()
        y = y.view(y.size(0), y.size(1), self.size)
        return F.linear(y, self.o_weight, self.o_bias), attn.mean(dim=1)
