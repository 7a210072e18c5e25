import torch
import torch.nn as nn


def subsequent_mask(size, device=None):
    """True above the diagonal: those positions lie in the future."""
    return torch.triu(torch.ones(size, size, dtype=torch.bool, device=device), diagonal=1)


class DecoderSelfAttention(nn.Module):
    """Causal self attention. `mask` (batch, seq, seq) or (seq, seq), True = do not look."""

    def __init__(self, dim, heads=4, dropout=0.):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, dim * 2, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(dropout))

    def forward(self, x, mask=None):
        b, n, d = x.shape
        h = self.heads

        q = self.to_q(x)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, h, d // h).permute(0, 2, 1, 3), (q, k, v))

        blocked = subsequent_mask(n, x.device)
        if mask is not None:
            blocked = mask.logical_or(blocked)
        if blocked.dim() == 3:
            blocked = blocked.unsqueeze(1)

        dots = torch.einsum('bhid,bhjd->bhij', q, k) * self.scale
        dots = dots.masked_fill(blocked, torch.finfo(dots.dtype).min)
        attn = dots.softmax(dim=-1).masked_fill(blocked, 0.)

        out = torch.einsum('bhij,bhjd->bhid', attn, v)
        out = out.permute(0, 2, 1, 3).reshape(b, n, d)
        return self.to_out(out)
