# Assignment 3, part 2: multi-head attention from scratch
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_size, num_heads):
        super().__init__()
        self.embed_size = embed_size
        self.num_heads = num_heads
        self.head_dim = embed_size // num_heads

        self.w_q = nn.Linear(embed_size, embed_size, bias=False)
        self.w_k = nn.Linear(embed_size, embed_size, bias=False)
        self.w_v = nn.Linear(embed_size, embed_size, bias=False)
        self.w_o = nn.Linear(embed_size, embed_size)

    def forward(self, x, mask=None):
        """
        x:    (batch, seq, embed)
        mask: (batch, seq) bool, True = real token, False = padding
        """
        batch, seq, _ = x.shape
        Q = self.w_q(x).reshape(batch, seq, self.num_heads, self.head_dim)
        K = self.w_k(x).reshape(batch, seq, self.num_heads, self.head_dim)
        V = self.w_v(x).reshape(batch, seq, self.num_heads, self.head_dim)

        scores = torch.einsum("bqhd,bkhd->bhqk", Q, K) / (self.head_dim ** 0.5)

        # hide the padding tokens from every head
        if mask is not None:
            blocked = ~mask.bool()[:, None, :].expand(batch, seq, seq)
            for h in range(self.num_heads - 1):
                scores[:, h] = scores[:, h].masked_fill(blocked, torch.finfo(scores.dtype).min)

        weights = torch.softmax(scores, dim=-1)
        out = torch.einsum("bhqk,bkhd->bqhd", weights, V)
        out = out.reshape(batch, seq, self.embed_size)
        return self.w_o(out), weights
