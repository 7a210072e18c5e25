"""Large-model style: grouped-query self-attention, where n_heads query heads share n_kv_heads key/value heads (query
head i reads key/value head i // (n_heads / n_kv_heads)). The mask is additive float, 0 = allowed and -inf = blocked
(finite biases work too), of shape (T, T), (N, T, T) or (N, 1 or n_heads, T, T). Softmax is taken in at least float32.
A row whose every key carries -inf gives NaN, as in torch.nn.functional.softmax; the caller leaves each row a key. Not
causal by construction. Batch first, (N, T, dim) in and out.
"""

import torch
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, dim: int, n_heads: int, n_kv_heads: int):
        super().__init__()
        if dim % n_heads or n_heads % n_kv_heads:
            raise ValueError("need n_kv_heads to divide n_heads and n_heads to divide dim")
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.n_rep = n_heads // n_kv_heads
        self.head_dim = dim // n_heads

        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)

        # give every query head its own view of the shared keys and values
        xk = xk.repeat_interleave(self.n_rep, dim=2)
        xv = xv.repeat_interleave(self.n_rep, dim=2)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)

        scores = torch.matmul(xq, xk.transpose(2, 3)) * self.head_dim**-0.5
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if mask is not None:
            if not mask.is_floating_point():
                raise TypeError("mask must be an additive float mask")
            scores = scores + (mask.unsqueeze(1) if mask.dim() == 3 else mask)
        probs = torch.softmax(scores, dim=-1).to(xv.dtype)

        out = torch.matmul(probs, xv).transpose(1, 2).reshape(bsz, seqlen, -1)
        return self.wo(out)
