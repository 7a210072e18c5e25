"""Building a class that nobody has described: values for its constructor, from the names of the arguments.

h heads, d head width, D width
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

from attncheck.spec import BadTarget
from attncheck.subject import TimedOut
from attncheck_adapters.infer.names import role_of
from attncheck_adapters.seeded import seeded

# Unequal sizes first (h, d, D and lengths differ), then h = d and h = 1, where other faults hide.
SIZES: list[dict[str, Any]] = [
    {"width": 24, "heads": 4, "kv_heads": 2, "head_width": 6, "value_width": 6, "out_width": 20, "memory_width": 24},
    {"width": 16, "heads": 4, "kv_heads": 2, "head_width": 4, "value_width": 4, "out_width": 12, "memory_width": 16},
    {"width": 10, "heads": 1, "kv_heads": 1, "head_width": 10, "value_width": 10, "out_width": 14, "memory_width": 10},
]
ALWAYS: dict[str, Any] = {"dropout": 0.0, "length": 64, "bias": True, "causal": False, "layer": 0}
CONFIGS = ("config", "cfg", "args", "params", "conf", "hparams", "model_args")
SET_EVEN_IF_DEFAULT = ("width", "heads", "head_width", "dropout", "length", "out_width", "value_width")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One way to build a target: `obj(**keywords)`, or `obj(holder(**keywords))` where it takes a config."""

    obj: Any
    holder: Any
    keywords: dict[str, Any]

    @property
    def text(self) -> str:
        text = ", ".join(f"{k}={v!r}" for k, v in self.keywords.items())
        return text if self.holder is None else f"{self.holder.__name__}({text})"

    @property
    def code(self) -> str:
        lines = f"torch.manual_seed(0)\ntarget = Target({self.text})"
        if self.holder is None:
            return lines
        return f"from {self.holder.__module__} import {self.holder.__qualname__.split('.')[0]}\n\n{lines}"

    def make(self, seed: int = 0) -> Any:
        """The target, built under a seed; whatever its constructor raises is a BadTarget."""
        try:
            return seeded(
                lambda: self.obj(**self.keywords) if self.holder is None else self.obj(self.holder(**self.keywords)),
                seed=seed,
            )
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            name, problem = getattr(self.obj, "__name__", self.obj), " ".join(str(error).split())
            raise BadTarget(f"building {name}({self.text}) raised {type(error).__name__}: {problem}") from error

    def known(self) -> dict[str, Any]:
        """All values that the constructor works with, defaults included."""
        return {**_defaults(self.obj if self.holder is None else self.holder), **self.keywords}

    def sizes(self) -> dict[str, int]:
        known = {role_of(k): v for k, v in self.known().items() if isinstance(v, int) and not isinstance(v, bool)}
        return {role: v for role, v in known.items() if role}

    def causal_flags(self) -> list[bool]:
        return [v for k, v in self.known().items() if role_of(k) == "causal" and isinstance(v, bool)]

    def undivided(self) -> Recipe | None:
        """The same for four heads and a width of 10; None where it takes no width and heads, or a width of heads."""
        roles = {role_of(k) for k in self.keywords}
        if not {"width", "heads"} <= roles or {"head_width", "value_width", "out_width"} & roles:
            return None
        sizes = {"width": 10, "memory_width": 10, "heads": 4, "kv_heads": 2}
        keywords = {k: sizes.get(role_of(k) or "", v) for k, v in self.keywords.items()}
        return dataclasses.replace(self, keywords=keywords)

    def dropping(self, p: float) -> Recipe | None:
        """The same with dropout p, None where the constructor has no such argument."""
        drops = [k for k in self.keywords if role_of(k) == "dropout"]
        return dataclasses.replace(self, keywords={**self.keywords, **dict.fromkeys(drops, p)}) if drops else None


def build(obj: Any, init: dict[str, Any] | None, config: Any) -> list[tuple[Recipe, Any]]:
    """Up to three configurations of a class or factory; the user's own keywords make it one."""
    if not callable(obj):
        raise BadTarget(
            f"the target is {type(obj).__name__} {obj!r:.60}, expected a class, a factory, a function or a module"
        )
    recipes = [plan(obj, init, config, sizes) for sizes in (SIZES if init is None else SIZES[:1])]
    first = (recipes[0], recipes[0].make())
    others = list({r.text: r for r in recipes[1:] if r.text != first[0].text}.values())
    return [first, *((r, module) for r in others if (module := _made(r)) is not None)]


def _made(recipe: Recipe) -> Any:
    """A further configuration, None where the class does not take its sizes."""
    try:
        return recipe.make()
    except BadTarget:
        return None


def plan(obj: Any, init: dict[str, Any] | None, config: Any, sizes: dict[str, Any]) -> Recipe:
    """Values for the constructor, or for its config, from one choice of sizes."""
    parameters = _parameters(obj)
    name = next((n for n in parameters if n in CONFIGS), None)
    holder = config or (None if name is None else _config_class(obj, parameters[name]))
    if holder is None and len(parameters) == 1 and not parameters.keys() & (init or {}).keys():
        annotation = _annotation(obj, next(iter(parameters.values())))
        holder = annotation if dataclasses.is_dataclass(annotation) else None
    taken = parameters if holder is None else _parameters(holder)
    given = dict(init or {})
    return Recipe(obj, holder, {**_values(obj, taken, sizes, given), **given})


def _parameters(obj: Any) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return {}
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in signature.parameters.items() if p.kind in plain}


def _defaults(obj: Any) -> dict[str, Any]:
    return {n: p.default for n, p in _parameters(obj).items() if p.default is not inspect.Parameter.empty}


def _values(
    obj: Any, parameters: dict[str, inspect.Parameter], sizes: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """A value for each argument whose role is known; a required one without a role is the user's to give."""
    values: dict[str, Any] = {}
    single = not any(role_of(n) == "heads" for n in parameters)
    for name, parameter in parameters.items():
        role, required = role_of(name), parameter.default is inspect.Parameter.empty
        if name in given or role == "device" or (not required and role not in SET_EVEN_IF_DEFAULT):
            continue
        if parameter.default is None and role not in ("width", "heads"):
            continue
        if role is None:
            raise BadTarget(
                f"building {getattr(obj, '__name__', obj)}: {name!r} has no default and a name of unknown meaning; "
                f'give it with --target-init="{name}=..."'
            )
        value = {**sizes, **ALWAYS}[role]
        if role == "head_width" and single and "width" in {role_of(n) for n in parameters}:
            value = 10  # one head of a width of its own
        if role == "length" and not required and not isinstance(parameter.default, int):
            continue
        values[name] = value
    return values


def _config_class(obj: Any, parameter: inspect.Parameter) -> Any:
    """The class of a config argument: its annotation, or the one dataclass with a width beside the target."""
    annotation = _annotation(obj, parameter)
    module = sys.modules.get(getattr(obj, "__module__", ""), None)
    if inspect.isclass(annotation) and annotation is not inspect.Parameter.empty and annotation not in (dict, object):
        return annotation
    beside = [c for c in vars(module).values() if inspect.isclass(c) and _has_width(c)] if module else []
    if len(beside) == 1:
        return beside[0]
    raise BadTarget(
        f"building {getattr(obj, '__name__', obj)}: {parameter.name!r} is a config, and {len(beside)} dataclasses "
        f"beside it could be meant; give --target-config=pkg.mod:Config"
    )


def _annotation(obj: Any, parameter: inspect.Parameter) -> Any:
    """Of a parameter. Text, as under `from __future__ import annotations`, is looked up beside the target."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    module = sys.modules.get(getattr(obj, "__module__", ""), None)
    return getattr(module, parameter.annotation.strip("'\""), None)


def _has_width(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) and any(role_of(f.name) == "width" for f in dataclasses.fields(cls))
