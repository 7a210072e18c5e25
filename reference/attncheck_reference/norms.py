"""Normalisation written plainly, each over the last axis: RMSNorm, LayerNorm, and the unit length.

D features
"""

import torch
from torch import Tensor, nn

from attncheck_reference.refusals import one_of

NORMS = ("none", "rms", "layer")


def unit(x_D: Tensor, eps: float = 1e-12) -> Tensor:
    """x / |x|: only the direction is left. eps: the least length that is divided by."""
    return x_D / x_D.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)


class RMSNorm(nn.Module):
    """x / RMS(x) * weight (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4).

    shape: of the weight; its last axis is normalised.  eps: added to the mean square.
    """

    def __init__(self, *shape: int, eps: float = 1e-6, weight: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(shape)) if weight else None

    def forward(self, x_D: Tensor) -> Tensor:
        normed_D = x_D / (x_D.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return normed_D if self.weight is None else normed_D * self.weight


class LayerNorm(nn.Module):
    """(x - mean) / deviation * weight + bias (Ba et al. 2016, "Layer Normalization", equations 3 and 4).

    shape: of weight and bias; its last axis is normalised.  eps: added to the variance, which is that of N, not N - 1.
    """

    def __init__(self, *shape: int, eps: float = 1e-5, weight: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(shape)) if weight else None
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x_D: Tensor) -> Tensor:
        centred_D = x_D - x_D.mean(-1, keepdim=True)
        normed_D = centred_D / (centred_D.square().mean(-1, keepdim=True) + self.eps).sqrt()
        scaled_D = normed_D if self.weight is None else normed_D * self.weight
        return scaled_D if self.bias is None else scaled_D + self.bias


class UnitNorm(nn.Module):
    """`unit` as a module, without parameters; the shape is taken so that it is built as the others are."""

    def __init__(self, *shape: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x_D: Tensor) -> Tensor:
        return unit(x_D, self.eps)


def norm(name: str, kind: str, *shape: int, eps: float | None = None, unit: bool = False) -> nn.Module:
    """The norm that the keyword `name` asks for by its kind; eps: its own default where None."""
    one_of(name, kind, (*NORMS, "unit") if unit else NORMS)
    if kind == "none":
        return nn.Identity()
    cls = {"rms": RMSNorm, "layer": LayerNorm, "unit": UnitNorm}[kind]
    made: nn.Module = cls(*shape) if eps is None else cls(*shape, eps=eps)
    return made
