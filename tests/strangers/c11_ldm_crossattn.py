import torch
import torch.nn.functional as F
from torch import nn, einsum


def exists(val):
    return val is not None


class GEGLU(nn.Module):
    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.proj = nn.Linear(dim_in, dim_out * 2)

    def forward(self, x):
        h, gate = self.proj(x).chunk(2, dim=-1)
        return F.gelu(gate) * h


class CrossAttention(nn.Module):
    """Tokens of the feature map attend to the conditioning, or to themselves without one."""

    def __init__(self, query_dim, context_dim=None, heads=8, dim_head=64, dropout=0.):
        super().__init__()
        self.heads = heads
        self.dim_head = dim_head
        self.scale = dim_head ** -0.5
        inner = heads * dim_head
        if not exists(context_dim):
            context_dim = query_dim

        self.to_q = nn.Linear(query_dim, inner, bias=False)
        self.to_k = nn.Linear(context_dim, inner, bias=False)
        self.to_v = nn.Linear(context_dim, inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, query_dim), nn.Dropout(dropout))

    def split_heads(self, t):
        return t.unflatten(-1, (self.heads, self.dim_head)).transpose(1, 2)

    def forward(self, x, context=None, mask=None):
        if not exists(context):
            context = x

        q = self.split_heads(self.to_q(x)) * self.scale
        k = self.split_heads(self.to_k(context))
        v = self.split_heads(self.to_v(context))

        sim = einsum('bhid,bhjd->bhij', q, k)
        if exists(mask):
            # keep-mask over the context, (b, j) or with the tokens still in a grid
            keep = mask.flatten(1).bool()[:, None, None, :]
            sim = sim.masked_fill(~keep, torch.finfo(sim.dtype).min)
        attn = sim.softmax(dim=-1)

        out = einsum('bhij,bhjd->bhid', attn, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class BasicTransformerBlock(nn.Module):
    def __init__(self, dim, n_heads, d_head, dropout=0., context_dim=None):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.attn1 = CrossAttention(dim, None, n_heads, d_head, dropout)
        self.attn2 = CrossAttention(dim, context_dim, n_heads, d_head, dropout)
        self.ff = nn.Sequential(GEGLU(dim, dim * 4), nn.Dropout(dropout), nn.Linear(dim * 4, dim))

    def forward(self, x, context=None, mask=None):
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), context=context, mask=mask)
        return x + self.ff(self.norm3(x))
