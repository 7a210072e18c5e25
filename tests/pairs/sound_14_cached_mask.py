import torch
from torch import nn


class MaskedSelfAttention(nn.Module):
    """Causal self-attention with padding. The mask is kept between calls where it can be reused.

    attention_mask: (batch, seq) of 0/1 (any dtype), 1 = keep. Positions without any visible key
    produce a zero context vector.
    """

    def __init__(self, hidden_size, num_attention_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_attention_heads
        self.head_size = hidden_size // num_attention_heads
        self.q = nn.Linear(hidden_size, hidden_size)
        self.k = nn.Linear(hidden_size, hidden_size)
        self.v = nn.Linear(hidden_size, hidden_size)
        self.o = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self._visible = None

    def _causal(self, n, device):
        return torch.ones(n, n, dtype=torch.bool, device=device).tril()[None, None]

    def _get_visible(self, x, attention_mask):
        n = x.size(1)
        if self._visible is None or self._visible.size(-1) != n or self._visible.device != x.device:
            self._visible = self._causal(n, x.device)
        visible = self._visible
        if attention_mask is not None:
            visible = visible & attention_mask.bool()[:, None, None, :]
        return visible

    def forward(self, hidden_states, attention_mask=None):
        b, n, d = hidden_states.shape
        q, k, v = [
            proj(hidden_states).view(b, n, self.num_heads, self.head_size).transpose(1, 2)
            for proj in (self.q, self.k, self.v)
        ]
        visible = self._get_visible(hidden_states, attention_mask)

        scores = q @ k.transpose(-1, -2) * self.head_size ** -0.5
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        probs = scores.softmax(-1).masked_fill(~visible, 0)
        probs = self.dropout(probs)

        context = (probs @ v).transpose(1, 2).reshape(b, n, d)
        return self.o(context)
