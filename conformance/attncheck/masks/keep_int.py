"""Integers, 1 = may attend, 0 = blocked: tokenizers' attention_mask, and code that writes mask == 0."""

import torch
from torch import Tensor


def encode(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return allowed.long()


def decode(mask: Tensor) -> Tensor:
    if mask.is_floating_point() or mask.dtype == torch.bool or bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError(f"mask.dtype={mask.dtype}: expected integers 0 and 1")
    return mask == 1
