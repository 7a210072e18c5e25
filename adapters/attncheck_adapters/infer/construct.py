"""Building a class that nobody has described: values for its constructor, from the names of the arguments.

h heads, d head width, D width
"""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

from torch import nn

from attncheck.spec import BadTarget
from attncheck.valid import closest
from attncheck_adapters.infer.configs import (
    EMPTY,
    SECTION,
    annotation_of,
    class_of,
    fields_of,
    holds_values,
    instance_beside,
    is_config,
    names_read,
    parameters_of,
)
from attncheck_adapters.infer.names import likely_role, role_of
from attncheck_adapters.infer.recipe import Recipe, role_of_part


def _sizes(width: int, heads: int, groups: int, d: int, out: int) -> dict[str, Any]:
    return {"width": width, "heads": heads, "kv_heads": groups, "head_width": d, "value_width": d, "out_width": out,
            "memory_width": width}  # fmt: skip


# Unequal sizes first (h, d, D and lengths differ), then h = d and h = 1, where other faults hide.
SIZES = [_sizes(24, 4, 2, 6, 20), _sizes(16, 4, 2, 4, 12), _sizes(10, 1, 1, 10, 14)]
# Where a class does not take these: head widths that can be rotated in part, and those of real models.
OTHER_SIZES = [_sizes(32, 4, 2, 8, 20), _sizes(64, 4, 2, 16, 48), _sizes(128, 2, 1, 64, 96), _sizes(32, 4, 4, 8, 32)]
ALWAYS: dict[str, Any] = {
    "dropout": 0.0, "length": 64, "bias": True, "causal": False, "layer": 0, "eps": 1e-5, "base": 10000.0,
    "count": 2, "vocabulary": 40, "hidden": 40, "scale": None, "window": 4, "activation": "gelu", "fraction": 0.5,
}  # fmt: skip
SET_EVEN_IF_DEFAULT = ("width", "heads", "head_width", "dropout", "length", "out_width", "value_width", "memory_width")


def build(obj: Any, init: dict[str, Any] | None, config: Any) -> list[tuple[Recipe, Any]]:
    """Up to three configurations of a class or factory; the user's own keywords make it one."""
    if not callable(obj):
        raise BadTarget(
            f"the target is {type(obj).__name__} {obj!r:.60}, expected a class, a factory, a function or a module"
        )
    first = _first_that_builds(obj, init, config)
    sizes = SIZES[1:] if init is None else []
    others = {r.text: r for r in (plan(obj, init, config, s) for s in sizes) if r.text != first[0].text}
    return [first, *((r, module) for r in others.values() if (module := _made(r)) is not None)]


def _first_that_builds(obj: Any, init: dict[str, Any] | None, config: Any) -> tuple[Recipe, Any]:
    """The first choice of sizes that the constructor takes; where it takes none, what it said of the first."""
    recipe = plan(obj, init, config, SIZES[0])
    try:
        return recipe, recipe.make()
    except BadTarget as problem:
        tried = {recipe.text}
        for sizes in OTHER_SIZES:
            other = plan(obj, init, config, sizes)
            if other.text not in tried and (module := _made(other)) is not None:
                return other, module
            tried.add(other.text)
        raise problem


def _made(recipe: Recipe) -> Any:
    """A further configuration, None where the class does not take its sizes."""
    try:
        return recipe.make()
    except BadTarget:
        return None


def plan(obj: Any, init: dict[str, Any] | None, config: Any, sizes: dict[str, Any], configs: bool = False) -> Recipe:
    """Values for the constructor, and for the configs that it asks for, from one choice of sizes.

    configs: also for those that it does not insist on.
    """
    return Planner(obj, dict(init or {}), config, sizes, configs).recipe()


GROUPS = re.compile("kv|key_value|query_group", re.I)
FLAG = re.compile(r"^(use|is|has|with|output|return|enable|do|add|flash)_|_(enabled|attentions|cache)$")


class Planner:
    """One choice of sizes on its way into a constructor. What the user gave goes where its name is known."""

    def __init__(self, obj: Any, given: dict[str, Any], config: Any, sizes: dict[str, Any], configs: bool) -> None:
        self.obj, self.given, self.config, self.sizes, self.configs = obj, given, config, sizes, configs
        self.label = getattr(obj, "__name__", type(obj).__name__)

    def recipe(self) -> Recipe:
        parameters = _parameters(self.obj)
        kinds = {n: annotation_of(self.obj, n, p.annotation) for n, p in parameters.items()}
        holders = [n for n in parameters if n not in self.given and self._holds(n, parameters[n], kinds[n], parameters)]
        keywords: dict[str, Any] = {}
        for name, parameter in parameters.items():
            if name in holders:
                keywords[name] = self._holder(name, kinds[name])
            elif name not in self.given:
                keywords |= self._value(name, parameter.default, kinds[name], parameters)
        inside = {k for part in keywords.values() if isinstance(part, Recipe) for k in part.values()}
        own = {k: v for k, v in self.given.items() if not (holders and k not in parameters and k in inside)}
        taken = _takes_any(self.obj) or not parameters
        strange = [] if taken else [k for k in own if k not in parameters]
        if strange:
            known = [*parameters, *inside]
            raise BadTarget(
                f"building {self.label}: init has {strange[0]}={own[strange[0]]!r}, which is no argument of it"
                f"{closest(strange[0], known)}"
            )
        return Recipe(self.obj, keywords | own)

    def _holds(self, name: str, parameter: inspect.Parameter, kind: Any, parameters: Any) -> bool:
        """Whether this argument is a config; an optional one only where the sizes are nowhere else."""
        sole = len(parameters) == 1 and role_of(name) is None and holds_values(kind)
        if not (sole or (is_config(name, kind) and role_of(name) is None)):
            return False
        return self.configs or parameter.default is EMPTY or not {"width", "heads"} & set(map(role_of, parameters))

    def _holder(self, name: str, kind: Any) -> Recipe:
        cls = self.config or class_of(self.obj, kind)
        if cls is not None:
            return self._filled(cls)
        beside = instance_beside(self.obj)
        if beside is not None:
            return Recipe(dict, {**beside, **self._known(beside)})
        return self._from_what_is_read(name)

    def _filled(self, cls: Any) -> Recipe:
        """A config class with sizes, its own configs included."""
        fields = fields_of(cls)
        kinds = {n: annotation_of(cls, n, p.annotation) for n, p in _parameters(cls).items()}
        values: dict[str, Any] = {}
        for name, default in fields.items():
            if name in self.given:
                values[name] = self.given[name]
            elif holds_values(kinds[name]):
                values[name] = self._filled(kinds[name])
            else:
                values |= self._value(name, default, kinds[name], fields)
        taken = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())
        values |= {k: v for k, v in self.given.items() if taken and k not in values}
        return Recipe(cls, values)

    def _known(self, names: Any) -> dict[str, Any]:
        roles = {n: role_of(n) for n in names if isinstance(n, str)}
        chosen = {n: {**self.sizes, **ALWAYS}[r] for n, r in roles.items() if r in SET_EVEN_IF_DEFAULT}
        return chosen | {n: v for n, v in self.given.items() if n in roles}

    def _from_what_is_read(self, argument: str) -> Recipe:
        """A namespace, or a dict, of all that the code of the target reads of its config."""
        paths, by_item = names_read(self.obj, argument)
        if not paths:
            raise BadTarget(
                f"building {self.label}: {argument!r} is a config of an unknown class; "
                f"give --target-config=pkg.mod:Config"
            )
        maker = dict if by_item else SimpleNamespace
        root = Recipe(maker, {})
        for *sections, name in paths.values():
            node, outside = root, [s for s in sections if not SECTION.match(s)]
            if outside:
                continue  # a method or an attribute of a value
            for section in sections:
                node = node.keywords.setdefault(section, Recipe(maker, {}))
            if name not in node.keywords and not SECTION.match(name):
                node.keywords.update(self._read(argument, name))
        return root

    def _read(self, argument: str, name: str) -> dict[str, Any]:
        if name in self.given:
            return {name: self.given[name]}
        role = likely_role(name)
        if role == "device":
            return {name: None}
        if FLAG.search(name) and role in (None, "width"):
            return {name: False}
        return {} if role is None else {name: {**self.sizes, **ALWAYS}[role]}

    def _value(self, name: str, default: Any, kind: Any, beside: Any) -> dict[str, Any]:
        """A value where its role is known; a required one without a role is the user's to give."""
        required = default is EMPTY
        role = likely_role(name) if required and role_of_part(name) is None else role_of(name)
        if role == "device" and required:
            return {name: "cpu" if "type" not in name else None}
        # Groups of the class's own choice must still divide our heads.
        unfit = role == "kv_heads" and isinstance(default, int) and self.sizes["heads"] % max(default, 1)
        if GROUPS.search(name) and role == "kv_heads" and not required:
            # Grouped heads where the class has them, and as many as heads in the second choice.
            return {name: self.sizes["kv_heads"]} if self.sizes is not SIZES[1] or unfit else {}
        if role == "device" or (not required and role not in SET_EVEN_IF_DEFAULT and not unfit):
            return {}
        if default is None and role not in ("width", "heads"):
            return {}
        part = role_of_part(name) if role is None else None
        if part is not None:
            return {name: self._projection(part, beside)}
        if role is None:
            raise BadTarget(
                f"building {self.label}: {name!r} has no default and a name of unknown meaning; "
                f'give it with --target-init="{name}=..."'
            )
        if role == "length" and not required and not isinstance(default, int):
            return {}
        return {name: self._sized(role, beside)}

    def _sized(self, role: str, beside: Any) -> Any:
        roles = set(map(role_of, beside))
        if role == "head_width" and "heads" not in roles and "width" in roles:
            return 10  # one head of a width of its own
        return {**self.sizes, **ALWAYS}[role]

    def _projection(self, part: str, beside: Any) -> Recipe:
        """A linear map that a constructor wants ready-made."""
        s, roles = self.sizes, set(map(role_of, beside))
        grouped = "kv_heads" in roles
        inner = {"q": s["heads"], "o": s["heads"]}.get(part, s["kv_heads"] if grouped else s["heads"]) * s["head_width"]
        n_in, n_out = (inner, s["width"]) if part == "o" else (s["width"], inner)
        return Recipe(nn.Linear, {"in_features": n_in, "out_features": n_out})


def _takes_any(obj: Any) -> bool:
    """Whether a constructor takes keywords of any name."""
    try:
        return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(obj).parameters.values())
    except (TypeError, ValueError):
        return True


def _parameters(obj: Any) -> dict[str, inspect.Parameter]:
    """The arguments of a constructor; of one that passes them all on, those of the class above it."""
    found = parameters_of(obj)
    for base in obj.__mro__[1:] if inspect.isclass(obj) and _takes_any(obj) else ():
        if base in (nn.Module, object) or "__init__" not in vars(base):
            continue
        return {n: p for n, p in _parameters(base).items() if n not in found} | found
    return found
