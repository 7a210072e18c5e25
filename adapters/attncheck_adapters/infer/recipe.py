"""How a target is built, as a tree of calls: the target, its config, and what else its constructor wants ready-made."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from attncheck.spec import BadTarget
from attncheck.subject import TimedOut
from attncheck_adapters.infer.configs import EMPTY, fields_of
from attncheck_adapters.infer.form import told
from attncheck_adapters.infer.names import likely_role, role_of
from attncheck_adapters.seeded import seeded

LINEAR = "torch.nn.modules.linear"


@dataclass(frozen=True)
class Recipe:
    """`obj(**keywords)`; a keyword may be a recipe itself, as a config or a projection."""

    obj: Any
    keywords: dict[str, Any]

    @property
    def text(self) -> str:
        """The arguments as code."""
        return ", ".join(f"{k}={v.whole if isinstance(v, Recipe) else repr(v)}" for k, v in self.keywords.items())

    @property
    def whole(self) -> str:
        return f"{_name(self.obj)}({self.text})"

    @property
    def code(self) -> str:
        lines = [*self.imports()]
        return "\n".join([*lines, *([""] if lines else []), "torch.manual_seed(0)", f"target = Target({self.text})"])

    def imports(self) -> tuple[str, ...]:
        """Of the classes that its arguments are made of."""
        found = dict.fromkeys(_importing(part.obj) for part in self.parts() if part is not self)
        return tuple(line for line in found if line)

    def parts(self) -> Iterator[Recipe]:
        yield self
        for value in self.keywords.values():
            if isinstance(value, Recipe):
                yield from value.parts()

    def make(self, seed: int = 0) -> Any:
        """The target, built under a seed; whatever its constructor raises is a BadTarget."""
        try:
            return seeded(self._made, seed=seed)
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            raise BadTarget(f"building {self.whole} raised {told(error)}") from error

    def _made(self) -> Any:
        return self.obj(**{k: v._made() if isinstance(v, Recipe) else v for k, v in self.keywords.items()})

    def values(self) -> dict[str, Any]:
        """All plain values that the constructor and its configs are given, by name."""
        return {k: v for part in self.parts() for k, v in part.keywords.items() if not isinstance(v, Recipe)}

    @property
    def config(self) -> str | None:
        """The spec of the one config class that it is built with."""
        made = [part.obj for part in self.parts() if part is not self and hasattr(part.obj, "__module__")]
        configs = [c for c in made if not hasattr(builtins, _name(c)) and c.__module__ not in ("types", LINEAR)]
        return f"{configs[0].__module__}:{_name(configs[0])}" if configs else None

    def known(self) -> dict[str, Any]:
        """The values that the constructor and its configs work with, defaults included; those that were given last."""
        defaults = {n: d for part in self.parts() for n, d in fields_of(part.obj).items() if d is not EMPTY}
        return {**defaults, **self.values()}

    def sizes(self) -> dict[str, int]:
        whole = {k: v for k, v in self.known().items() if isinstance(v, int) and not isinstance(v, bool)}
        likely = {likely_role(k): v for k, v in whole.items() if k in self.values()}
        return {r: v for r, v in likely.items() if r} | {r: v for k, v in whole.items() if (r := role_of(k))}

    def causal_flags(self) -> list[bool]:
        return [v for k, v in self.known().items() if role_of(k) == "causal" and isinstance(v, bool)]

    def changed(self, change: Callable[[str, Any], Any]) -> Recipe:
        """The same with each plain value put through `change(name, value)`."""
        keywords = {k: v.changed(change) if isinstance(v, Recipe) else change(k, v) for k, v in self.keywords.items()}
        return replace(self, keywords=keywords)

    def undivided(self) -> Recipe | None:
        """The same for four heads and a width of 10; None where it takes no width and heads, or a width of heads."""
        roles = {role_of(k) for k in self.values()}
        if not {"width", "heads"} <= roles or {"head_width", "value_width", "out_width"} & roles:
            return None
        if any(role_of_part(k) for k in self.keywords):
            return None
        sizes = {"width": 10, "memory_width": 10, "heads": 4, "kv_heads": 2}
        return self.changed(lambda name, value: sizes.get(role_of(name) or "", value))

    def dropping(self, p: float) -> Recipe | None:
        """The same with dropout p, None where the constructor has no such argument."""
        if not any(role_of(k) == "dropout" for k in self.values()):
            return None
        return self.changed(lambda name, value: p if role_of(name) == "dropout" else value)


def role_of_part(name: str) -> str | None:
    """Which projection a ready-made part is, by its name: q, k, v or o."""
    words = name.lower().removesuffix("_proj").removesuffix("_linear").removesuffix("_layer")
    known = {"q": "q", "query": "q", "k": "k", "key": "k", "v": "v", "value": "v", "o": "o", "out": "o", "output": "o"}
    return known.get(words) if words != name.lower() else None


def _name(obj: Any) -> str:
    return str(getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__name__)


def _importing(obj: Any) -> str:
    name = _name(obj).split(".")[0]
    return "" if hasattr(builtins, name) else f"from {obj.__module__} import {name}"
