"""Small-GPT style: causal self-attention configured by a dataclass, with a fused c_attn, a c_proj and a registered
lower-triangular buffer. There is no mask argument: it is causal by construction, future positions are set to -inf and
the softmax is written by hand. Each row sees at least itself, so no row lacks an allowed key. Batch first (N, T,
n_embd) in and out, with T at most block_size.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class GPTConfig:
    n_embd: int = 768
    n_head: int = 12
    block_size: int = 1024
    dropout: float = 0.0
    bias: bool = True


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.block_size = config.block_size
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        past = torch.ones(config.block_size, config.block_size, dtype=torch.bool).tril()
        self.register_buffer("past", past[None, None], persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        if self.block_size < T:
            raise ValueError(f"sequence of {T} does not fit block_size {self.block_size}")
        hs = C // self.n_head

        q, k, v = (z.view(B, T, self.n_head, hs).transpose(1, 2) for z in self.c_attn(x).chunk(3, dim=-1))

        att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(hs))  # (B, nh, T, T)
        att = att.masked_fill(~self.past[:, :, :T, :T], -math.inf)
        # softmax by hand; the row maximum is finite since the diagonal is always visible
        att = torch.exp(att - att.amax(dim=-1, keepdim=True))
        att = att / att.sum(dim=-1, keepdim=True)

        y = self.attn_dropout(att) @ v
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.resid_dropout(self.c_proj(y))
