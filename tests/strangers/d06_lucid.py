import torch
import torch.nn.functional as F
from torch import nn, einsum

# helpers

def exists(val):
    return val is not None

def default(val, d):
    return val if exists(val) else d

# classes

class LayerNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))
        self.register_buffer('beta', torch.zeros(dim))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gamma, self.beta)

class Attention(nn.Module):
    def __init__(
        self,
        dim,
        *,
        dim_head = 64,
        heads = 8,
        causal = False,
        num_null_kv = 1,
        norm_context = False,
        dropout = 0.
    ):
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.scale = dim_head ** -0.5
        inner_dim = dim_head * heads

        self.norm = LayerNorm(dim)
        self.context_norm = LayerNorm(dim) if norm_context else nn.Identity()

        self.num_null_kv = num_null_kv
        self.null_kv = nn.Parameter(torch.randn(2, heads, num_null_kv, dim_head))

        self.to_q = nn.Linear(dim, inner_dim, bias = False)
        self.to_kv = nn.Linear(dim, inner_dim * 2, bias = False)
        self.attn_dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner_dim, dim, bias = False)

    def forward(self, x, context = None, mask = None):
        b, n, h, device = x.shape[0], x.shape[1], self.heads, x.device

        x = self.norm(x)
        kv_input = self.context_norm(context) if exists(context) else x

        q, k, v = (self.to_q(x), *self.to_kv(kv_input).chunk(2, dim = -1))

        # b n (h d) -> b h n d

        q, k, v = map(lambda t: t.unflatten(-1, (h, -1)).transpose(1, 2), (q, k, v))

        # null key / values, so that a row always has something to attend to

        nk, nv = map(lambda t: t.expand(b, -1, -1, -1), self.null_kv)
        k = torch.cat((nk, k), dim = -2)
        v = torch.cat((nv, v), dim = -2)

        sim = einsum('b h i d, b h j d -> b h i j', q * self.scale, k)
        i, j = sim.shape[-2:]

        # mask is (b, j), True for tokens to keep

        if exists(mask):
            mask = F.pad(mask, (self.num_null_kv, 0), value = True)
            sim = sim.masked_fill(~mask[:, None, None, :], -torch.finfo(sim.dtype).max)

        if self.causal:
            causal_mask = torch.ones((i, j), dtype = torch.bool, device = device).triu(j - i + 1)
            sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)

        attn = sim.softmax(dim = -1)
        attn = self.attn_dropout(attn)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)

        # b h n d -> b n (h d)

        out = out.transpose(1, 2).flatten(2)
        return self.to_out(out)
