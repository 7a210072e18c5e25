import abc
import math

import torch
import torch.nn as nn


class BaseSelfAttention(nn.Module, abc.ABC):
    """Everything attention layers share; a subclass says what is added to the scores."""

    def __init__(self, d_model: int, nhead: int, dropout: float = 0.0):
        super().__init__()
        if d_model % nhead:
            raise ValueError("d_model must be a multiple of nhead")
        self.d_model, self.nhead = d_model, nhead
        self.d_head = d_model // nhead
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    @abc.abstractmethod
    def score_bias(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Return an additive bias of shape (nhead, length, length)."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor = None) -> torch.Tensor:
        """x: (batch, length, d_model). mask: bool (length, length), False hides a key."""
        n, t, _ = x.shape
        q, k, v = self.in_proj(x).view(n, t, 3, self.nhead, self.d_head).permute(2, 0, 3, 1, 4)
        bias = self.score_bias(t, q)
        if mask is not None:
            bias = bias.masked_fill(~mask, float("-inf"))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.d_head) + bias
        y = torch.matmul(self.drop(scores.softmax(-1)), v)
        return self.out_proj(y.transpose(1, 2).reshape(n, t, self.d_model))


class AlibiMixin:
    """Causal linear biases. The table is kept and grows when a longer input comes."""

    _table = None

    @staticmethod
    def slopes(nhead: int) -> torch.Tensor:
        return torch.tensor([2.0 ** (-8.0 * (h + 1) / nhead) for h in range(nhead)])

    def _make_table(self, length: int, like: torch.Tensor) -> torch.Tensor:
        pos = torch.arange(length)
        dist = (pos[None, :] - pos[:, None]).float()
        table = self.slopes(self.nhead)[:, None, None] * dist
        table = table.masked_fill(dist > 0, float("-inf"))
        return table.to(device=like.device, dtype=like.dtype)

    def score_bias(self, length: int, like: torch.Tensor) -> torch.Tensor:
        table = self._table
        if table is None or table.size(-1) < length or table.device != like.device or table.dtype != like.dtype:
            table = self._table = self._make_table(length, like)
        return table[:, :length, :length]


class AlibiSelfAttention(AlibiMixin, BaseSelfAttention):
    pass
