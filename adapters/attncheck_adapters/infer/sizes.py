"""The sizes of a built target: from its constructor's values, its attributes, and the shapes of its parameters."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from torch import nn

from attncheck_adapters.infer.names import CONSTRUCTOR

KEYS = re.compile(r"(^|[._])(w_?|to_?|linear_?)?(k|kv|key|keys|key_value)(_?(proj|linear|lin|layer))?$", re.I)


@dataclass(frozen=True)
class Sizes:
    widths: tuple[int, int, int]  # of query, key, value
    heads: int
    kv_heads: int
    head_width: int = 6  # a first guess, for what is rotated


def sizes_of(target: Any, known: dict[str, int]) -> Sizes:
    width = known.get("width") or _attribute(target, "width") or _first_in_features(target)
    heads = known.get("heads") or _attribute(target, "heads") or 1
    kv_heads = known.get("kv_heads") or _attribute(target, "kv_heads") or heads
    memory = known.get("memory_width") or _memory_width(target, width) or width
    kv_heads = kv_heads if heads % kv_heads == 0 else heads
    d = _attribute(target, "head_width") or known.get("head_width") or width // heads
    return Sizes((width, memory, memory), heads, kv_heads, d)


def _attribute(target: Any, role: str) -> int | None:
    """A whole number of the target, or of its config, under a name of the role."""
    # Last the constants at the top of its file.
    home = sys.modules.get(type(target).__module__)
    home = None if home is None or home.__name__.startswith("torch") else home
    for holder in (target, getattr(target, "config", None), getattr(target, "cfg", None), home):
        for name in CONSTRUCTOR[role]:
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0 and len(name) > 1:
                return value
    single = getattr(target, "h", None) if role == "heads" else None
    return single if isinstance(single, int) else None


def _memory_width(target: Any, width: int) -> int | None:
    """What the maps of keys and values read, where they are named and it is not the width."""
    parts = dict(target.named_modules()) if isinstance(target, nn.Module) else {}
    reads = {int(m.in_features) for n, m in parts.items() if isinstance(m, nn.Linear) and KEYS.search(n)}
    heads = _attribute(target, "heads") or 1
    # A map that reads a head's slice reads no memory.
    return next(iter(reads)) if len(reads) == 1 and not reads & {width, width // heads} else None


def _first_in_features(target: Any) -> int:
    parts = target.modules() if isinstance(target, nn.Module) else ()
    return next((int(m.in_features) for m in parts if isinstance(m, nn.Linear)), 0)
