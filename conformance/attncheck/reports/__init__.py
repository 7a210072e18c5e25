"""Report formats: one file a format, with `render(report) -> str`. A file that is here is found; nothing lists it."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def formats() -> dict[str, ModuleType]:
    """The formats that are there, by name."""
    found = {m.name: importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
    return {name: module for name, module in found.items() if hasattr(module, "render")}
