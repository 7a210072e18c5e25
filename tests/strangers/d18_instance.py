# minimal local attention experiment, run `python d18_instance.py` for a smoke test
import torch
import torch.nn as nn
from torch.nn import functional as F

n_embd = 64
n_head = 4
block_size = 64
window = 8


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


class LocalSelfAttention(nn.Module):

    def __init__(self, n_embd, n_head, block_size, window):
        super().__init__()
        assert n_embd % n_head == 0
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        # token i sees itself and the window - 1 tokens before it
        ones = torch.ones(block_size, block_size)
        band = torch.tril(ones) * torch.triu(ones, 1 - window)
        self.register_buffer("band", band.view(1, 1, block_size, block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q, k = rms(q), rms(k)  # qk-norm keeps the logits small
        att = (q @ k.transpose(-2, -1)) * (C // self.n_head) ** -0.5
        att = att.masked_fill(self.band[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


torch.manual_seed(1337)
attention = LocalSelfAttention(n_embd, n_head, block_size, window)

if __name__ == "__main__":
    x = torch.randn(2, 20, n_embd)
    print(sum(p.numel() for p in attention.parameters()), attention(x).shape)
