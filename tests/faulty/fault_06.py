import torch
import torch.nn as nn

# Homework 3, part 2: encoder-decoder attention
# Symbols: B batch, L target length, S source length, H heads, D head size


class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError("d_model should be divisible by n_heads")
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, memory_mask=None):
        """
        x: decoder states (B, L, d_model)
        memory: encoder output (B, S, d_model)
        memory_mask: (B, S), True for real tokens
        """
        B, L, _ = x.shape
        S = memory.shape[1]

        # (B, H, L, D)
        Q = self.W_q(x).view(B, L, self.n_heads, self.d_head).transpose(1, 2)
        # (B, H, S, D)
        K = self.W_k(memory).view(B, self.n_heads, S, self.d_head)
        V = self.W_v(memory).view(B, self.n_heads, S, self.d_head)

        scores = torch.matmul(Q, K.transpose(2, 3)) / self.d_head ** 0.5
        if memory_mask is not None:
            scores = scores.masked_fill(~memory_mask[:, None, None, :].bool(), torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)

        out = torch.matmul(weights, V)
        out = out.transpose(1, 2).reshape(B, L, self.d_model)
        return self.W_o(out)
