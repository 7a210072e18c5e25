"""The sizes of a built target: from its constructor's values, its attributes, and the shapes of its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from attncheck_adapters.infer.names import CONSTRUCTOR


@dataclass(frozen=True)
class Sizes:
    widths: tuple[int, int, int]  # of query, key, value
    heads: int
    kv_heads: int


def sizes_of(target: Any, known: dict[str, int]) -> Sizes:
    width = known.get("width") or _attribute(target, "width") or _first_in_features(target)
    heads = known.get("heads") or _attribute(target, "heads") or 1
    kv_heads = known.get("kv_heads") or _attribute(target, "kv_heads") or heads
    memory = known.get("memory_width") or width
    kv_heads = kv_heads if heads % kv_heads == 0 else heads
    return Sizes((width, memory, memory), heads, kv_heads)


def _attribute(target: Any, role: str) -> int | None:
    """A whole number of the target, or of its config, under a name of the role."""
    for holder in (target, getattr(target, "config", None), getattr(target, "cfg", None)):
        for name in CONSTRUCTOR[role]:
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0 and len(name) > 1:
                return value
    single = getattr(target, "h", None) if role == "heads" else None
    return single if isinstance(single, int) else None


def _first_in_features(target: Any) -> int:
    parts = target.modules() if isinstance(target, nn.Module) else ()
    return next((int(m.in_features) for m in parts if isinstance(m, nn.Linear)), 0)
