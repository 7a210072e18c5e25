"""Bool, True = may not attend: torch.nn.MultiheadAttention and torch.nn.Transformer*, fairseq, TransformerEngine."""

import torch
from torch import Tensor


def encode(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return ~allowed


def decode(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise TypeError(f"mask.dtype={mask.dtype}: expected torch.bool with True = blocked")
    return ~mask
