"""Sequence-toolkit style: (query, key, value) attention in sequence-first layout, computed by bmm over batch * heads.
attn_mask is boolean, True = blocked, of shape (T, S) for all, or (N * heads, T, S) with the heads of one sample next to
each other. A row without an allowed key gets zero weights in that head; if so in all heads, its output is the bias of
out_proj. Not causal by construction. query (T, N, D), key and value (S, N, D); returns (output (T, N, D), weights
averaged over the heads (N, T, S), taken before dropout).
"""

import torch
from torch import nn
from torch.nn import functional as F


class SeqFirstAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "embed_dim must be divisible by num_heads"
        self.scaling = self.head_dim**-0.5

        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def _shape(self, t, bsz):
        # L x N x D  ->  (N * heads) x L x head_dim
        return t.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)

    def forward(self, query, key, value, attn_mask=None):
        tgt_len, bsz, _ = query.size()
        src_len = key.size(0)

        q = self._shape(self.q_proj(query) * self.scaling, bsz)
        k = self._shape(self.k_proj(key), bsz)
        v = self._shape(self.v_proj(value), bsz)

        attn = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is None:
            attn = F.softmax(attn, dim=-1)
        else:
            if attn_mask.dtype != torch.bool:
                raise TypeError("attn_mask must be a bool tensor")
            attn = attn.masked_fill(attn_mask, torch.finfo(attn.dtype).min)
            attn = F.softmax(attn, dim=-1).masked_fill(attn_mask, 0.0)

        ctx = torch.bmm(F.dropout(attn, p=self.dropout, training=self.training), v)
        ctx = ctx.transpose(0, 1).reshape(tgt_len, bsz, self.embed_dim)

        avg = attn.view(bsz, self.num_heads, tgt_len, src_len).mean(dim=1)
        return self.out_proj(ctx), avg
