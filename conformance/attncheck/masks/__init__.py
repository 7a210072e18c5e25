"""Mask conventions, one a file, found by presence: the canonical bool mask (True = may attend) <-> what one API reads.

A convention is a module with `encode(allowed, dtype) -> mask` and `decode(mask) -> allowed`.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def conventions() -> dict[str, ModuleType]:
    """All conventions by name."""
    return {m.name: importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
