import torch
from torch import nn, einsum


def exists(v):
    return v is not None


class GatedAttention(nn.Module):
    """Attention whose output is gated by the input (sigmoid gate, AlphaFold style)."""

    def __init__(self, dim, heads = 4, dim_head = 8, gating = True):
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.to_q = nn.Linear(dim, inner, bias = False)
        self.to_kv = nn.Linear(dim, inner * 2, bias = False)
        self.to_out = nn.Linear(inner, dim)
        self.gating = nn.Linear(dim, inner) if gating else None
        if gating:
            nn.init.constant_(self.gating.weight, 0.)
            nn.init.constant_(self.gating.bias, 1.)

    def forward(self, x, mask = None, attn_bias = None):
        # mask: (b, n), True for residues that exist; attn_bias: (b, h, i, j)
        b, n, _ = x.shape
        q = self.to_q(x)
        k, v = self.to_kv(x).chunk(2, dim = -1)
        q, k, v = (t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))

        dots = einsum('b h i d, b h j d -> b h i j', q * self.scale, k)
        if exists(attn_bias):
            dots = dots + attn_bias

        # masked softmax
        attn = dots.exp()
        if exists(mask):
            attn = attn * mask[:, None, None, :].to(attn.dtype)
        attn = attn / attn.sum(dim = -1, keepdim = True).clamp(min = 1e-30)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = out.transpose(1, 2).reshape(b, n, -1)
        if exists(self.gating):
            out = out * self.gating(x).sigmoid()
        return self.to_out(out)
