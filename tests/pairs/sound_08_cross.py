import torch
import torch.nn as nn


class CrossAttention(nn.Module):
    """Decoder -> encoder attention.

    x:      (B, T, d_model) decoder states
    memory: (B, S, d_model) encoder states
    mask:   (B, S) bool, True at padded memory positions (blocked)
    """

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, memory, mask=None):
        b = x.size(0)
        q = self.q_proj(x)
        k, v = self.kv_proj(memory).chunk(2, dim=-1)
        q = q.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)
        k = k.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)
        v = v.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)

        energy = q.matmul(k.transpose(2, 3)) / self.d_head ** 0.5
        if mask is not None:
            energy = energy.masked_fill(mask[:, None, None, :], torch.finfo(energy.dtype).min)
        weights = self.drop(torch.softmax(energy, dim=-1))

        ctx = weights.matmul(v).transpose(1, 2).flatten(2)
        return self.o_proj(ctx)
