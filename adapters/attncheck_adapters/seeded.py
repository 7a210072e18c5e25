"""Building a module the same way every time, without touching the caller's random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def seeded(make: Callable[..., Any], *args: Any, seed: int = 0, **kwargs: Any) -> Any:
    """Call `make` under a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*args, **kwargs)


def redraw_degenerate(module: nn.Module) -> list[str]:
    """Draw parameters anew that start as zeros, tiny, huge or not finite, and hide faults. Returns their names.

    Tiny are matrices of less than half the usual size 1 / sqrt(inputs): under them all weights are nearly alike.
    """
    names = []
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        usual = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
        size = parameter.detach().abs().max() if parameter.numel() else torch.ones(())
        if not (usual / 2 if parameter.ndim > 1 else 1e-3) <= float(size) <= 1e3:
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * usual)
            names.append(name)
    return names


REDRAW = """\
generator = torch.Generator().manual_seed(1)  # parameters that start degenerate are drawn anew
for parameter in target.parameters():
    usual = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
    if not (usual / 2 if parameter.ndim > 1 else 1e-3) <= parameter.detach().abs().max() <= 1e3:
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * usual)"""
