"""Gated attention with learned positions on queries and keys, called by keyword only."""
from typing import NamedTuple, Optional

import torch
from torch import Tensor, nn


class AttentionOutput(NamedTuple):
    hidden: Tensor
    weights: Optional[Tensor]


class GatedAttention(nn.Module):
    def __init__(self, *, channels: int, n_heads: int, max_len: int = 256, with_gate: bool = True):
        super().__init__()
        self.n_heads = n_heads
        self.c_head = channels // n_heads
        self.positions = nn.Parameter(0.02 * torch.randn(max_len, channels))
        self.linear_q = nn.Linear(channels, channels, bias=False)
        self.linear_k = nn.Linear(channels, channels, bias=False)
        self.linear_v = nn.Linear(channels, channels, bias=False)
        self.linear_g = nn.Linear(channels, channels) if with_gate else None
        self.linear_o = nn.Linear(channels, channels)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, self.c_head)).transpose(-2, -3)

    def forward(
        self,
        *,
        query: Tensor,
        memory: Optional[Tensor] = None,
        memory_mask: Optional[Tensor] = None,
        bias: Optional[Tensor] = None,
        return_weights: bool = False,
    ) -> AttentionOutput:
        """
        query: [batch, q, channels]
        memory: [batch, k, channels], the query itself when left out
        memory_mask: [batch, k] bool, True for valid entries
        bias: [batch or 1, heads or 1, q, k] added to the logits
        """
        memory = query if memory is None else memory
        values = self._heads(self.linear_v(memory))
        memory = memory + self.positions[: memory.size(1)]
        keys = self._heads(self.linear_k(memory))
        gate_input = query
        query = query + self.positions[: query.size(1)]
        queries = self._heads(self.linear_q(query))

        logits = torch.einsum("bhqc,bhkc->bhqk", queries, keys) / self.c_head**0.5
        if bias is not None:
            logits = logits + bias
        if memory_mask is not None:
            logits = logits.masked_fill(~memory_mask[:, None, None, :], torch.finfo(logits.dtype).min)
        weights = logits.softmax(-1)

        out = torch.einsum("bhqk,bhkc->bqhc", weights, values).flatten(-2)
        if self.linear_g is not None:
            out = out * torch.sigmoid(self.linear_g(gate_input))
        return AttentionOutput(self.linear_o(out), weights if return_weights else None)
