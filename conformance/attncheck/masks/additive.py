"""Float, added to the scores: 0 = may attend, -inf = blocked. Decoding refuses a finite bias, which is no mask."""

import torch
from torch import Tensor


def encode(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A float tensor is a bias already."""
    if allowed.is_floating_point():
        return allowed.to(dtype)
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, -torch.inf)


def decode(mask: Tensor) -> Tensor:
    if not mask.is_floating_point():
        raise TypeError(f"mask.dtype={mask.dtype}: expected floats, 0 = may attend and -inf = blocked")
    blocked = mask == -torch.inf
    if bool((~blocked & (mask != 0)).any()):
        raise ValueError("mask has values other than 0 and -inf: a finite bias weakens a key and does not block it")
    return ~blocked
