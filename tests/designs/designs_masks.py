"""Sound attention that takes other masks, has a pattern of its own, or another policy for rows without a key."""

import torch
from designs import Plain
from torch import Tensor


class DeadNaN(Plain):
    """A query without a key gives NaN."""

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -torch.inf)


class DeadZero(DeadNaN):
    """A query without a key gathers nothing."""

    def soft(self, scores: Tensor) -> Tensor:
        dead = (scores == -torch.inf).all(-1, keepdim=True)
        # Replaced before the softmax, so that no NaN arises whose gradient would spread.
        return scores.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)


class DeadUniform(Plain):
    """A query without a key gives the mean of all values."""

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        dead = ~mask.any(-1, keepdim=True)
        return scores.masked_fill(~mask & ~dead, -torch.inf).masked_fill(dead, 0.0)


class DeadRefused(DeadNaN):
    """A query without a key is an error of the caller."""

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        if not mask.any(-1).all():
            raise ValueError("mask: a query may attend to no key")
        return super().hide(scores, mask)


class OneMaskASample(DeadNaN):
    """Takes (N,T,S) and nothing else."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.shape != (len(x), x.shape[1], x.shape[1]):
            raise ValueError(f"mask.shape={tuple(mask.shape)}: expected (N,T,S)")
        return super().forward(x, None if mask is None else mask[:, None])


class IntegerPadding(Plain):
    """1 for a real token and 0 for padding, in integers alone."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return super().forward(x)
        if attention_mask.dtype != torch.int64 or attention_mask.shape != x.shape[:2]:
            raise TypeError("attention_mask: expected integers (N,S)")
        return super().forward(x, attention_mask[:, None, None, :] != 0)


class LocalWindow(Plain):
    """Two keys to either side, and the own one."""

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        near = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(2).triu(-2)
        return super().forward(x, near if key_padding_mask is None else near & ~key_padding_mask[:, None, None, :])
