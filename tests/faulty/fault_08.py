import math

import torch
import torch.nn.functional as F
from torch import nn


class PackedMultiheadAttention(nn.Module):
    """Attention with one packed input projection, batch first.

    Equal query / key / value tensors take one large matmul, an encoder-decoder call takes two, any
    other call takes three.

    key_padding_mask: (N, S) bool, True = ignore. attn_mask: (L, S) float, added.
    """

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        assert embed_dim % num_heads == 0
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        if bias:
            self.in_proj_bias = nn.Parameter(torch.empty(3 * embed_dim))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self._reset_parameters()

    def _reset_parameters(self):
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.constant_(self.in_proj_bias, 0.0)
            nn.init.constant_(self.out_proj.bias, 0.0)

    def _project(self, query, key, value):
        E = self.embed_dim
        w, b = self.in_proj_weight, self.in_proj_bias
        if query is key and key is value:
            return F.linear(query, w, b).chunk(3, dim=-1)
        if key is value:
            w_q, w_kv = w.split([E, 2 * E])
            b_q, b_kv = (None, None) if b is None else b.split([E, 2 * E])
            q = F.linear(query, w_q, b_q)
            k, v = F.linear(key, w_kv, b_kv).chunk(2, dim=-1)
            return q, k, v
        w_q, w_k, w_v = w.chunk(3)
        b_q, b_k, b_v = (None, None, None) if b is None else b.chunk(3)
        return F.linear(query, w_q, b_q), F.linear(key, w_k, b_k), F.linear(value, w_v, b_k)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        N, L, E = query.shape
        S = key.shape[1]
        q, k, v = self._project(query, key, value)
        q = q.view(N, L, self.num_heads, self.head_dim).transpose(1, 2)
        k = k.view(N, S, self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(N, S, self.num_heads, self.head_dim).transpose(1, 2)
        scores = torch.matmul(q / math.sqrt(self.head_dim), k.transpose(-2, -1))
        if attn_mask is not None:
            scores = scores + attn_mask
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], torch.finfo(scores.dtype).min)
        attn = F.dropout(scores.softmax(-1), self.dropout, self.training)
        out = torch.matmul(attn, v).transpose(1, 2).reshape(N, L, E)
        return self.out_proj(out)
