import torch
from torch import nn


class MultiScaleWindowAttention(nn.Module):
    """Causal attention with a window that doubles from head to head.

    Head h sees the last base_window * 2 ** h positions (itself included); the last head is global
    and sees the entire past.
    """

    def __init__(self, dim, num_heads=4, base_window=2, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.windows = [base_window * 2 ** h for h in range(num_heads - 1)]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def _bias(self, n, dtype, device):
        pos = torch.arange(n, device=device)
        dist = pos[:, None] - pos[None, :]
        bias = torch.zeros(self.num_heads, n, n, dtype=dtype, device=device)
        for h, window in enumerate(self.windows):
            visible = (dist >= 0) & (dist < window)
            bias[h].masked_fill_(~visible, float("-inf"))
        return bias

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        attn = q @ k.transpose(-2, -1) * self.head_dim ** -0.5
        attn = attn + self._bias(n, attn.dtype, x.device)
        attn = self.dropout(attn.softmax(dim=-1))
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))
