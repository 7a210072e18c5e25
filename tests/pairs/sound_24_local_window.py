import torch
from torch import nn, einsum


def default(val, d):
    return val if val is not None else d


class LocalAttention(nn.Module):
    """Sliding window attention for autoregressive models: a token sees itself and the
    `window_size - 1` tokens before it.

    mask: (b, n) bool, True = real token. A token whose whole window is padding gets zeros.
    """

    def __init__(self, dim, heads=4, dim_head=None, window_size=4):
        super().__init__()
        dim_head = default(dim_head, dim // heads)
        inner_dim = dim_head * heads
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.window_size = window_size
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Linear(inner_dim, dim, bias=False)

    def forward(self, x, mask=None):
        b, n, _ = x.shape
        h = self.heads
        q, k, v = (t.reshape(b, n, h, -1).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        q = q * self.scale
        sim = einsum('b h i d, b h j d -> b h i j', q, k)

        pos = torch.arange(n, device=x.device)
        dist = pos[:, None] - pos[None, :]
        keep = (dist >= 0) & (dist < self.window_size)
        keep = keep[None, None]
        if mask is not None:
            keep = keep & mask[:, None, None, :]

        sim = sim.masked_fill(~keep, -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1).masked_fill(~keep, 0.)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))
