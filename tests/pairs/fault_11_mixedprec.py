import torch
from torch import nn


class SelfAttention(nn.Module):
    """Plain multi-head self attention; runs in float32, bfloat16 and float16 alike.

    mask: bool, (batch, seq), True where the token is valid
    """

    def __init__(self, hidden_dim: int, num_heads: int = 4):
        super().__init__()
        self.num_heads = num_heads
        self.dim_per_head = hidden_dim // num_heads
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)
        self.output = nn.Linear(hidden_dim, hidden_dim)

    def shape(self, t):
        return t.view(t.shape[0], -1, self.num_heads, self.dim_per_head).transpose(1, 2)

    def unshape(self, t):
        return t.transpose(1, 2).contiguous().view(t.shape[0], -1, self.num_heads * self.dim_per_head)

    def forward(self, x, mask=None):
        q = self.shape(self.query(x)) / self.dim_per_head ** 0.5
        k = self.shape(self.key(x))
        v = self.shape(self.value(x))

        scores = torch.matmul(q, k.transpose(2, 3))
        if mask is not None:
            fill = -1e9
            scores = scores.masked_fill(~mask[:, None, None, :], fill)
        weights = torch.softmax(scores, dim=-1)
        return self.output(self.unshape(torch.matmul(weights, v)))
