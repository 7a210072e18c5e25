"""What a target says of itself: the names of its parts, the source of its classes, its plain attributes."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from attncheck.subject import Convention

# Arguments of a constructor that set the factor of the scores, themselves or by their root.
FACTORS = ("scale", "softmax_scale", "attention_multiplier", "attn_scale", "scaling", "attention_scale", "qk_scale")


def text_of(target: Any) -> str:
    """The names of parameters, buffers and submodules, and the source of its own classes and of what they call."""
    if not isinstance(target, nn.Module):
        return ""
    names = [n for n, _ in (*target.named_parameters(), *target.named_buffers(), *target.named_modules())]
    return " ".join(names) + "".join(text or "" for text in sources_of(target).values())


def sources_of(target: nn.Module) -> dict[Any, str | None]:
    """The source of its classes and of the functions beside them that they call; None where it cannot be had."""
    home = type(target).__module__
    open_: list[Any] = [c for m in target.modules() for c in type(m).__mro__ if c.__module__ == home]
    found: dict[Any, str | None] = {}
    beside = vars(sys.modules[home]) if home in sys.modules else {}
    while open_:
        thing = open_.pop()
        if thing in found:
            continue
        found[thing] = _source(thing)
        called = set(re.findall(r"\b([A-Za-z_]\w*)\s*[(,)]", found[thing] or ""))
        open_ += [f for n in called if inspect.isfunction(f := beside.get(n)) and _is_near(f, home)]
    return found


def _is_near(function: Any, home: str) -> bool:
    """Of the same package, and none of torch."""
    return bool(function.__module__.split(".")[0] == home.split(".")[0] != "torch")


@lru_cache(maxsize=256)
def _source(thing: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return None


def values_of(target: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Plain numbers of its constructor, its config and its attributes, by name."""
    owners = [m for m in target.modules()] if isinstance(target, nn.Module) else [target]
    found: dict[str, Any] = {}
    for _ in range(3):  # a config, its sections, and what is in them
        inner = [v for o in owners for v in getattr(o, "__dict__", {}).values() if _holds_values(v)]
        found = {k: v for o in owners for k, v in getattr(o, "__dict__", {}).items()} | found
        owners = inner
    return {k: v for k, v in {**found, **known}.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _holds_values(value: Any) -> bool:
    plain = isinstance(value, str | int | float | bool | list | tuple | dict | set | type(None) | type)
    return (
        not plain and not isinstance(value, nn.Module | Tensor) and hasattr(value, "__dict__") and not callable(value)
    )


def chosen_by_constructor(target: Any, known: dict[str, Any], text: str) -> dict[str, Convention]:
    """A cap and a factor of the scores that the constructor or config sets to a number: declared in so many words.

    So is a factor of 1 that the target keeps under its name.
    """
    one = next((n for n in FACTORS if isinstance(v := getattr(target, n, None), float) and v == 1.0), None)
    found = {} if one is None else {"scale": Convention("1", "declared", f"by its attribute {one} = 1.0")}
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
