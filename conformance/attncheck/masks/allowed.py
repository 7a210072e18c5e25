"""Bool, True = may attend: the canonical mask, and that of scaled_dot_product_attention, Keras, JAX and ONNX."""

import torch
from torch import Tensor


def encode(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return allowed


def decode(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise TypeError(f"mask.dtype={mask.dtype}: expected torch.bool with True = may attend")
    return mask
