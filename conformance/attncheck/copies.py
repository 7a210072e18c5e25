"""Copies of a module that has been called, and of the adapter around it."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn


def copied(adapter: Any) -> Any:
    """A deep copy of an adapter and its module."""
    if isinstance(getattr(adapter, "module", None), nn.Module):
        _detach_kept(adapter.module)
    return copy.deepcopy(adapter)


def copied_module(module: nn.Module) -> nn.Module:
    _detach_kept(module)
    return copy.deepcopy(module)


def _detach_kept(module: nn.Module) -> None:
    """Tensors that a forward pass left behind on its module cannot be copied with their graph."""
    for part in module.modules():
        for name, value in vars(part).items():
            if name not in ("_modules", "_parameters"):
                vars(part)[name] = _detached(value)


def _detached(value: Any) -> Any:
    """The same, with its tensors cut from their graph; lists and dicts stay the objects that they are."""
    if isinstance(value, Tensor) and value.grad_fn is not None:
        return value.detach()
    if isinstance(value, dict):
        value.update({k: _detached(v) for k, v in value.items()})
    elif isinstance(value, list):
        value[:] = [_detached(v) for v in value]
    return tuple(_detached(v) for v in value) if type(value) is tuple else value
