"""
Homework 4, Problem 2: Multi-head attention with linear position biases

Name: ______________      Student ID: ______________
"""
from typing import Optional

import torch
from torch import Tensor, nn


class AttentionHead(nn.Module):
    """(a) One attention head.

    slope: how fast attention decays with the distance |i - j|, see part (c).
    """

    def __init__(self, dim: int, head_dim: int, slope: float):
        super().__init__()
        self.wq = nn.Linear(dim, head_dim, bias=False)
        self.wk = nn.Linear(dim, head_dim, bias=False)
        self.wv = nn.Linear(dim, head_dim, bias=False)
        self.head_dim = head_dim
        self.slope = slope

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        logits = torch.einsum("btd,bsd->bts", q, k) / self.head_dim ** 0.5

        # (c) linear bias on the distance, not learned
        pos = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        logits = logits - self.slope * (pos[:, None] - pos[None, :]).abs()

        if mask is not None:
            logits = logits + mask
        probs = torch.softmax(logits, dim=-1)
        return probs @ v


class MultiHeadSelfAttention(nn.Module):
    """(b) Several heads, concatenated and mixed by a linear layer.

    mask: float tensor (T, T) or (B, T, T) that is ADDED to the logits. Use
    0 for allowed pairs and -inf for forbidden ones, cf. `causal_mask`.
    """

    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        if dim % n_heads != 0:
            raise ValueError("dim must be a multiple of n_heads")
        # slopes 2^(-8/n), 2^(-16/n), ...
        slopes = [2.0 ** (-8.0 * (i + 1) / n_heads) for i in range(n_heads)]
        self.heads = nn.ModuleList([AttentionHead(dim, dim // n_heads, s) for s in slopes])
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        outs = []
        for i in range(len(self.heads)):
            outs.append(self.heads[i](x, mask))
        return self.wo(torch.cat(outs, dim=-1))


def causal_mask(T: int) -> Tensor:
    return torch.full((T, T), float("-inf")).triu(diagonal=1)


def check_part_b():
    torch.manual_seed(0)
    m = MultiHeadSelfAttention(dim=16, n_heads=4)
    x = torch.randn(2, 5, 16)
    y = m(x, causal_mask(5))
    x2 = x.clone()
    x2[:, -1] += 1.0
    assert y.shape == x.shape
    assert torch.allclose(m(x2, causal_mask(5))[:, :-1], y[:, :-1], atol=1e-6)
    print("part (b) ok")


if __name__ == "__main__":
    check_part_b()
