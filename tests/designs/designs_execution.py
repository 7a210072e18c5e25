"""Sound attention that computes the same in another order: in chunks, blocks, again in the backward pass, from a cache.

N batch, h heads, T queries, S keys, d head width
"""

import math

import torch
from designs import Plain
from torch import Tensor
from torch.utils.checkpoint import checkpoint


class Checkpointed(Plain):
    """Scores are computed again for gradients."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return checkpoint(super().attend, q, k, v, mask, use_reentrant=False)


class QueryChunks(Plain):
    """Three queries at a time."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        parts = []
        for start in range(0, q.shape[-2], 3):
            rows = mask if mask is None or mask.shape[-2] == 1 else mask[..., start : start + 3, :]
            parts.append(super().attend(q[..., start : start + 3, :], k, v, rows))
        return torch.cat(parts, -2)


class OnlineSoftmax(Plain):
    """Two keys at a time, with a running maximum and sum; a query without a key gathers nothing."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = q @ k.mT / math.sqrt(self.dh)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        top, total = torch.full_like(scores[..., :1], -torch.inf), torch.zeros_like(scores[..., :1])
        mixed = torch.zeros_like(q)
        for block, values in zip(scores.split(2, -1), v.split(2, -2), strict=True):
            higher = torch.maximum(top, block.amax(-1, keepdim=True))
            shift = higher.masked_fill(higher == -torch.inf, 0.0)
            weights, old = (block - shift).exp(), (top - shift).exp()
            total, mixed, top = total * old + weights.sum(-1, keepdim=True), mixed * old + weights @ values, higher
        return mixed / total.masked_fill(total == 0, 1.0)


class KVCache(Plain):
    """Causal decoding: each call continues the sequence until `reset`."""

    def extra(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.past: tuple[Tensor, Tensor] | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.past is not None:
            k, v = torch.cat((self.past[0], k), -2), torch.cat((self.past[1], v), -2)
        self.past = k, v
        T, S = q.shape[-2], k.shape[-2]
        return super().attend(q, k, v, torch.ones(T, S, dtype=torch.bool).tril(S - T))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)
