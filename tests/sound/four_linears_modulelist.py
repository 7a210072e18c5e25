"""Paper-walkthrough style: (q, k, v, mask) multi-head attention with its four linears kept in a ModuleList and the
latest weights kept in self.attn (N, h, T, S), detached and as they were before dropout. True (or 1) = allowed; the mask
is (N, 1, T, S), or (N, T, S) which gets the head axis at dim 1; a query axis of length 1 serves all queries. A row
without an allowed key spreads its weight evenly over all keys, so its output is the mean value (finite, no NaN). Not
causal by construction. Batch first: q (N, T, D), k and v (N, S, D), result (N, T, D).
"""

import torch
import torch.nn as nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        if d_model % h:
            raise ValueError("h heads of equal size do not fit into d_model")
        self.h = h
        # in this order: for the queries, the keys, the values, and the joined heads
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(p=dropout)
        self.attn = None

    def forward(self, q, k, v, mask=None):
        to_q, to_k, to_v, to_out = self.linears
        q, k, v = self.split(to_q(q)), self.split(to_k(k)), self.split(to_v(v))

        logits = q.matmul(k.transpose(-2, -1)).div(q.size(-1) ** 0.5)
        if mask is not None:
            if mask.dim() == 3:
                mask = mask.unsqueeze(1)
            logits = logits.masked_fill(mask.logical_not(), torch.finfo(logits.dtype).min)
        probs = logits.softmax(-1)
        self.attn = probs.detach()

        heads = self.dropout(probs).matmul(v)
        return to_out(heads.transpose(1, 2).flatten(2))

    def split(self, x):
        """(N, L, D) to (N, h, L, D / h)"""
        return x.view(x.size(0), x.size(1), self.h, -1).transpose(1, 2)
