import torch
from torch import nn, einsum


def exists(val):
    return val is not None


def default(val, d):
    return val if exists(val) else d


class CrossAttend(nn.Module):
    def __init__(self, latent_dim, context_dim=None, heads=8, dim_head=64, dropout=0.):
        super().__init__()
        inner_dim = dim_head * heads
        context_dim = default(context_dim, latent_dim)
        self.scale = dim_head ** -0.5
        self.heads = heads

        self.to_q = nn.Linear(latent_dim, inner_dim, bias=False)
        self.to_kv = nn.Linear(context_dim, inner_dim * 2, bias=False)

        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner_dim, latent_dim)

    def fold_heads(self, t):
        # b n (h d) -> (b h) n d
        b, n, _ = t.shape
        return t.reshape(b, n, self.heads, -1).transpose(1, 2).reshape(b * self.heads, n, -1)

    def forward(self, latents, context=None, mask=None):
        # mask: b j, True for context elements to attend to
        h, b = self.heads, latents.shape[0]

        q = self.to_q(latents)
        context = default(context, latents)
        k, v = self.to_kv(context).chunk(2, dim=-1)

        q, k, v = map(self.fold_heads, (q, k, v))

        sim = einsum('b i d, b j d -> b i j', q, k) * self.scale

        if exists(mask):
            mask = mask.reshape(b, -1).bool()
            mask = mask.repeat_interleave(h, dim=0)[:, None, :]
            max_neg_value = -torch.finfo(sim.dtype).max
            sim = sim.masked_fill(~mask, max_neg_value)

        # attend
        attn = sim.softmax(dim=-1)
        attn = self.dropout(attn)

        out = einsum('b i j, b j d -> b i d', attn, v)
        out = out.reshape(b, h, out.shape[1], -1).transpose(1, 2).flatten(2)
        return self.to_out(out)
