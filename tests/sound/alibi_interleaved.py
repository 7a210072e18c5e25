import math

import torch
import torch.nn as nn


def get_slopes(n):
    def get_slopes_power_of_2(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start ** i for i in range(n)]

    if math.log2(n).is_integer():
        return get_slopes_power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return get_slopes_power_of_2(closest) + get_slopes(2 * closest)[0::2][: n - closest]


class AlibiSelfAttention(nn.Module):
    """Causal self attention with linear biases ("Train short, test long")."""

    def __init__(self, hidden_size, n_head, attention_dropout=0.0):
        super().__init__()
        self.hidden_size = hidden_size
        self.n_head = n_head
        self.head_dim = hidden_size // n_head
        if self.head_dim * n_head != hidden_size:
            raise ValueError("hidden_size must be divisible by n_head")
        self.inv_norm_factor = 1.0 / math.sqrt(self.head_dim)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.register_buffer("slopes", torch.tensor(get_slopes(n_head)), persistent=False)

    def forward(self, hidden_states, attention_mask=None):
        """attention_mask: (batch, seq) with 1 for tokens and 0 for padding"""
        b, t, _ = hidden_states.shape
        # (b, t, n_head, 3, head_dim), as in bloom
        fused = self.query_key_value(hidden_states).view(b, t, self.n_head, 3, self.head_dim)
        q, k, v = (fused[..., i, :].transpose(1, 2) for i in range(3))

        pos = torch.arange(t, device=hidden_states.device)
        distance = (pos[None, :] - pos[:, None]).to(q.dtype)          # j - i, <= 0 in the past
        alibi = self.slopes.to(q.dtype)[:, None, None] * distance
        scores = q @ k.transpose(-1, -2) * self.inv_norm_factor + alibi[None]

        blocked = (pos[None, :] > pos[:, None])[None, None]
        if attention_mask is not None:
            blocked = blocked | (attention_mask[:, None, None, :] == 0)
        scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
        probs = self.attention_dropout(scores.softmax(-1))
        context = (probs @ v).transpose(1, 2).reshape(b, t, self.hidden_size)
        return self.dense(context)
