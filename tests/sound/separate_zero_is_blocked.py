"""Tutorial style: multi-head self-attention with four separate bias-free linears wq, wk, wv, wo. The mask follows
the "mask == 0 is hidden" habit: nonzero or True = allowed, zero or False = blocked, shape (T, T), (N, T, T) or
(N, 1, T, T), boolean or 0/1 numbers. Blocked scores are replaced by the smallest finite number of the score dtype,
which also fits half precision. A row without an allowed key therefore gives the plain mean of all values (uniform
weights), never NaN. Not causal by construction. Batch first, (N, T, D) in and out.
"""

import math

import torch
import torch.nn as nn


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        assert d_model % n_heads == 0, "d_model must be divisible by n_heads"
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_k = d_model // n_heads

        self.wq = nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Linear(d_model, d_model, bias=False)
        self.wv = nn.Linear(d_model, d_model, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def split_heads(self, t):
        # (N, T, D) -> (N, heads, T, d_k)
        n, seq_len, _ = t.size()
        return t.view(n, seq_len, self.n_heads, self.d_k).transpose(1, 2)

    def forward(self, x, mask=None):
        # Step 1: project and cut into heads
        Q = self.split_heads(self.wq(x))
        K = self.split_heads(self.wk(x))
        V = self.split_heads(self.wv(x))

        # Step 2: compare every query with every key
        scores = torch.matmul(Q, K.transpose(-1, -2)) / math.sqrt(self.d_k)

        # Step 3: hide what the mask says is hidden
        if mask is not None:
            if mask.dim() == 3:
                mask = mask.unsqueeze(1)  # same mask for every head
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)

        # Step 4: turn scores into weights and mix the values
        weights = self.dropout(torch.softmax(scores, dim=-1))
        context = torch.matmul(weights, V)

        # Step 5: glue the heads back together
        context = context.transpose(1, 2).contiguous().view(x.size(0), x.size(1), self.d_model)
        return self.wo(context)
