import torch
import torch.nn.functional as F
from torch import nn


def look_around(x, backward, forward, pad_value):
    # x: (b, windows, n, ...) -> (b, windows, (backward + 1 + forward) * n, ...)
    w = x.shape[1]
    pads = [0, 0] * (x.ndim - 2) + [backward, forward]
    padded = F.pad(x, pads, value=pad_value)
    return torch.cat([padded[:, i:i + w] for i in range(backward + forward + 1)], dim=2)


class LocalAttention(nn.Module):
    """Windowed attention in linear memory.

    With causal=True position i attends to i - window_size .. i, otherwise to
    i - window_size .. i + window_size. Any sequence length is accepted; it is padded inside.
    """

    def __init__(self, dim, heads=4, window_size=3, causal=False, dropout=0.):
        super().__init__()
        self.heads = heads
        self.window_size = window_size
        self.causal = causal
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        # mask: (b, n) bool, True for tokens
        b, n, d = x.shape
        h, ws = self.heads, self.window_size
        qkv = self.to_qkv(x).reshape(b, n, 3, h, d // h).permute(2, 0, 3, 1, 4)
        q, k, v = (t.reshape(b * h, n, d // h) for t in qkv)

        rest = (-n) % ws
        q, k, v = (F.pad(t, (0, 0, 0, rest)) for t in (q, k, v))
        windows = (n + rest) // ws
        bq, bk, bv = (t.reshape(b * h, windows, ws, -1) for t in (q, k, v))

        fwd = 0 if self.causal else 1
        bk = look_around(bk, 1, fwd, 0.)
        bv = look_around(bv, 1, fwd, 0.)

        pos = torch.arange(n + rest, device=x.device)
        pos = torch.where(pos < n, pos, torch.full_like(pos, -10 ** 6)).view(1, windows, ws)
        k_pos = look_around(pos, 1, fwd, -10 ** 6)
        q_pos = torch.arange(n + rest, device=x.device).view(1, windows, ws)

        dist = q_pos[..., :, None] - k_pos[..., None, :]
        allowed = (dist <= ws) & (dist >= (0 if self.causal else -ws))

        sim = torch.einsum('bwid,bwjd->bwij', bq * self.scale, bk)
        if mask is not None:
            m = F.pad(mask, (0, rest), value=False).view(b, windows, ws)
            m = look_around(m, 1, fwd, False)[:, :, None, :]
            allowed = (allowed & m).repeat_interleave(h, dim=0)
        sim = sim.masked_fill(~allowed, -torch.finfo(sim.dtype).max)
        attn = self.dropout(sim.softmax(dim=-1))
        out = torch.einsum('bwij,bwjd->bwid', attn, bv)
        out = out.reshape(b, h, n + rest, -1)[:, :, :n]
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))
