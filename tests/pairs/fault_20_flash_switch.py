import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalAttention(nn.Module):
    """Causal multi-head attention; uses the fused kernel for inference."""

    def __init__(self, n_embd, n_head, dropout=0.0, use_flash=True):
        super().__init__()
        self.n_head = n_head
        self.use_flash = use_flash
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(dropout)

    def _eager(self, q, k, v):
        T = q.size(-2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        future = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
        att = att.masked_fill(future, float("-inf"))
        return self.drop(att.softmax(dim=-1)) @ v

    def _flash(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head).permute(2, 0, 3, 1, 4)
        inference = not self.training and not torch.is_grad_enabled()
        if self.use_flash and inference:
            y = self._flash(q, k, v)
        else:
            y = self._eager(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))
