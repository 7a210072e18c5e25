"""Textbook style: one head of scaled dot-product self-attention, written straight from softmax(QK^T / sqrt(d)) V.
The output width d_out may differ from the input width d_in. No mask, hence no row without an allowed key, and not
causal. Takes (N, T, d_in) or (T, d_in); returns the pair (output, weights) of shapes (..., T, d_out), (..., T, T).
"""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False):
        super().__init__()
        self.d_out = d_out
        self.W_q = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_k = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_v = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        Q, K, V = self.W_q(x), self.W_k(x), self.W_v(x)
        A = torch.softmax(Q @ K.mT / self.d_out**0.5, dim=-1)
        return A @ V, A
