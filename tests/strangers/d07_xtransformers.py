from __future__ import annotations
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn, einsum, Tensor

DEFAULT_DIM_HEAD = 64

@dataclass
class Intermediates:
    pre_softmax_attn: Tensor | None = None
    post_softmax_attn: Tensor | None = None

def exists(val):
    return val is not None

def default(val, d):
    return val if exists(val) else d

def max_neg_value(tensor):
    return -torch.finfo(tensor.dtype).max

def l2norm(t):
    return F.normalize(t, p = 2, dim = -1)

class Attention(nn.Module):
    def __init__(
        self,
        dim,
        dim_head = DEFAULT_DIM_HEAD,
        heads = 8,
        causal = False,
        talking_heads = False,
        qk_norm = False,
        qk_norm_scale = 10,
        gate_values = False,
        dropout = 0.
    ):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads = heads
        self.causal = causal
        self.qk_norm = qk_norm
        self.scale = qk_norm_scale if qk_norm else dim_head ** -0.5

        self.to_q = nn.Linear(dim, inner_dim, bias = False)
        self.to_k = nn.Linear(dim, inner_dim, bias = False)
        self.to_v = nn.Linear(dim, inner_dim, bias = False)
        self.to_v_gate = nn.Linear(dim, inner_dim) if gate_values else None

        # talking heads, mixes the heads before and after the softmax
        self.talking_heads = talking_heads
        if talking_heads:
            self.pre_softmax_proj = nn.Parameter(torch.eye(heads))
            self.post_softmax_proj = nn.Parameter(torch.eye(heads))

        self.dropout = nn.Dropout(dropout)
        self.attn_fn = partial(F.softmax, dim = -1)
        self.to_out = nn.Linear(inner_dim, dim, bias = False)

    def forward(
        self,
        x,
        context = None,
        mask = None,          # (b, n) of x, True keeps
        context_mask = None,  # (b, m) of context, True keeps
        attn_mask = None,     # (i, j), (h, i, j) or (b, h, i, j), True keeps
        rel_pos = None        # callable (i, j) -> bias
    ):
        b, n, h, device, has_context = *x.shape[:2], self.heads, x.device, exists(context)
        kv_input = default(context, x)

        q, k, v = self.to_q(x), self.to_k(kv_input), self.to_v(kv_input)
        q, k, v = map(lambda t: t.reshape(b, -1, h, t.shape[-1] // h).permute(0, 2, 1, 3), (q, k, v))

        if self.qk_norm:
            q, k = map(l2norm, (q, k))

        dots = einsum('b h i d, b h j d -> b h i j', q, k) * self.scale
        i, j = dots.shape[-2:]
        mask_value = max_neg_value(dots)

        if exists(rel_pos):
            dots = dots + rel_pos(i, j)

        if self.talking_heads:
            dots = einsum('b h i j, h k -> b k i j', dots, self.pre_softmax_proj)

        masks = []
        input_mask = context_mask if has_context else mask

        if exists(input_mask):
            masks.append(~input_mask[:, None, None, :])

        if exists(attn_mask):
            assert 2 <= attn_mask.ndim <= 4, 'attention mask must have between 2 and 4 dimensions'
            masks.append(~attn_mask)

        if self.causal:
            masks.append(torch.ones((i, j), dtype = torch.bool, device = device).triu(j - i + 1))

        for m in masks:
            dots = dots.masked_fill(m, mask_value)

        attn = self.attn_fn(dots)
        post_softmax_attn = attn
        attn = self.dropout(attn)

        if self.talking_heads:
            attn = einsum('b h i j, h k -> b k i j', attn, self.post_softmax_proj)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = out.permute(0, 2, 1, 3).reshape(b, n, -1)

        if exists(self.to_v_gate):
            out = out * self.to_v_gate(x).sigmoid()

        return self.to_out(out), Intermediates(pre_softmax_attn = dots, post_softmax_attn = post_softmax_attn)
