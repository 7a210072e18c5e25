"""Textbook style: scaled dot-product attention as a plain function without parameters. mask is boolean (or 0/1) and
True = allowed; any shape that broadcasts to (N, h, T, S) will do. A row without an allowed key gives zero weights and a
zero output. Not causal by construction. q is (N, h, T, d), k (N, h, S, d), v (N, h, S, dv); dropout is None or a
callable such as an nn.Dropout, applied to the weights. Returns (output (N, h, T, dv), weights (N, h, T, S)), the
weights being those that multiplied v, after dropout.
"""

import math

import torch


def attention(q, k, v, mask=None, dropout=None):
    p = torch.einsum("nhtd,nhsd->nhts", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        off = mask == 0
        p = p.masked_fill(off, torch.finfo(p.dtype).min)
    p = p.softmax(-1)
    if mask is not None:
        p = p.masked_fill(off, 0)
    if dropout is not None:
        p = dropout(p)
    return torch.einsum("nhts,nhsv->nhtv", p, v), p
