"""What a target says of itself: the names of its parts, the source of its classes, its plain attributes."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn

from attncheck.subject import Convention

# Arguments of a constructor that set the factor of the scores, themselves or by their root.
FACTORS = ("scale", "softmax_scale", "attention_multiplier", "attn_scale", "scaling", "attention_scale", "qk_scale")


def text_of(target: Any) -> str:
    """The names of parameters, buffers and submodules, and the source of its own classes where it can be had."""
    if not isinstance(target, nn.Module):
        return ""
    names = [n for n, _ in (*target.named_parameters(), *target.named_buffers(), *target.named_modules())]
    home = type(target).__module__
    classes = dict.fromkeys(c for m in target.modules() for c in type(m).__mro__ if c.__module__ == home)
    return " ".join(names) + "".join(map(_source, classes))


def _source(cls: type) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return ""


def values_of(target: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Plain numbers of its constructor, its config and its attributes, by name."""
    holders = [getattr(target, n, None) for n in ("config", "cfg", "args")]
    found = {k: v for holder in holders for k, v in getattr(holder, "__dict__", {}).items()}
    found |= {k: v for m in target.modules() for k, v in vars(m).items()} if isinstance(target, nn.Module) else {}
    return {k: v for k, v in {**found, **known}.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def chosen_by_constructor(known: dict[str, Any], text: str) -> dict[str, Convention]:
    """A cap and a factor of the scores that the constructor or config sets to a number: declared in so many words."""
    found = {}
    numbers = {k: float(v) for k, v in known.items() if isinstance(v, int | float) and not isinstance(v, bool) and v}
    for name, value in numbers.items():
        evidence = f"by {name}={value:g} of the constructor"
        if re.search(r"soft_?cap", name, re.I) and "tanh" in text:
            found["softcap"] = Convention(f"{value:.9g}", "declared", evidence)
        elif name == "query_pre_attn_scalar":
            found["scale"] = Convention(f"{value**-0.5:.9g}", "declared", evidence)
        elif name in FACTORS:
            found["scale"] = Convention(f"{value:.9g}", "declared", evidence)
    return found
