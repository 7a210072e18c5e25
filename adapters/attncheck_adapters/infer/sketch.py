"""What is known of a target that could not be met: enough for a person to finish its adapter."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

from attncheck.spec import BadTarget
from attncheck_adapters.infer.configs import parameters_of
from attncheck_adapters.infer.construct import SIZES, plan
from attncheck_adapters.infer.form import MASK_ROLES
from attncheck_adapters.infer.names import call_role, extra_role
from attncheck_adapters.infer.recipe import Recipe
from attncheck_adapters.infer.sizes import sizes_of

TOKENS = {"query": "query", "key": "key", "value": "value", "memory": "key"}


@dataclass(frozen=True)
class Sketch:
    """Lines of code and gaps in them, which are `...`."""

    imports: tuple[str, ...]
    build: str  # an expression on `Target`
    width: int
    heads: int
    arguments: tuple[str, ...]  # of the call, as `x=query`
    masks: tuple[str, ...]  # arguments that are masks by their name
    unknown: tuple[str, ...]  # what has no default and no known meaning


def sketch(obj: Any, init: dict[str, Any] | None, config: Any) -> Sketch:
    """Built if it can be, its call read off the names as far as they are known."""
    recipe, target, gaps = _built(obj, init, config)
    met = obj if target is None else target
    called = getattr(met, "forward", met)
    arguments, masks, unknown = _arguments(called)
    sizes = sizes_of(target, {} if recipe is None else recipe.sizes()) if target is not None else None
    build = "Target" if isinstance(obj, nn.Module) else f"Target({recipe.text if recipe else gaps})"
    imports = recipe.imports() if recipe else ()
    width, heads = (sizes.widths[0], sizes.heads) if sizes else (SIZES[0]["width"], SIZES[0]["heads"])
    return Sketch(imports, build, width, heads, arguments, masks, unknown)


def _built(obj: Any, init: dict[str, Any] | None, config: Any) -> tuple[Recipe | None, Any, str]:
    """The recipe, the target, and where there is neither, the arguments of the constructor with gaps."""
    if isinstance(obj, nn.Module):
        return None, obj, ""
    try:
        recipe = plan(obj, init, config, SIZES[0])
    except BadTarget:
        needed = [n for n, p in parameters_of(obj).items() if p.default is inspect.Parameter.empty]
        return None, None, ", ".join(f"{n}=..." for n in needed)
    try:
        return recipe, recipe.make(), ""
    except BadTarget:
        return recipe, None, ""


def _arguments(called: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Arguments of the call with what they are given, the masks among them, and the gaps."""
    given, masks, unknown = [], [], []
    for i, (name, parameter) in enumerate(parameters_of(called).items()):
        role = call_role(name) or ("query" if i == 0 else None)
        required = parameter.default is inspect.Parameter.empty
        if role in MASK_ROLES:
            masks.append(name)
        elif role in TOKENS:
            given.append(f"{name}={TOKENS[role]}")
        elif required and extra_role(name) is None:
            unknown.append(name)
            given.append(f"{name}=...")
    return tuple(given), tuple(masks), tuple(unknown)
