"""The config that a constructor asks for: its class, wherever it stands, or an object made of what the code reads."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from attncheck_adapters.infer.names import role_of

CONFIGS = (
    "config", "cfg", "args", "params", "conf", "hparams", "model_args", "configs", "model_config", "opt", "opts",
    "hp", "hps", "options", "settings", "configuration", "hyperparams",
)  # fmt: skip
EMPTY = inspect.Parameter.empty
# Parts of a nested config that hold the values of attention.
SECTION = re.compile(
    r"^(model|attn|attention|self_attn|self_attention|encoder|decoder|transformer|text_config|net|arch)$"
)
ENDING = re.compile(r"(Config|Configuration|Args|Arguments|Params|Options|HParams|Hparams|Settings|Cfg)$")


def is_config(name: str, annotation: Any) -> bool:
    """Whether an argument holds other values: by its name, or by the class that it is annotated with."""
    named = name in CONFIGS or name.endswith(("_config", "_cfg", "_args", "_params", "_hparams"))
    return named or (inspect.isclass(annotation) and holds_values(annotation))


def holds_values(cls: Any) -> bool:
    """A class of sizes: a dataclass or a class of that name, with a width or heads among its arguments."""
    if not inspect.isclass(cls) or cls in (dict, object, SimpleNamespace):
        return False
    named = dataclasses.is_dataclass(cls) or bool(ENDING.search(cls.__name__)) or issubclass(cls, tuple)
    return named and bool({"width", "heads"} & set(map(role_of, fields_of(cls))))


def fields_of(cls: Any) -> dict[str, Any]:
    """What a config class may be given: name -> default, `inspect.Parameter.empty` where it has none."""
    return {n: p.default for n, p in parameters_of(cls).items()}


def parameters_of(obj: Any) -> dict[str, inspect.Parameter]:
    """The arguments that can be given by name; none where there is no signature."""
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):
        return {}
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in parameters.items() if p.kind in plain}


def class_of(obj: Any, annotation: Any) -> Any:
    """The class of a config argument: its annotation, or the one beside the target; None where none can be told."""
    # A class that says nothing of sizes may still take them as attributes.
    if inspect.isclass(annotation) and annotation not in (dict, object, SimpleNamespace) and fields_of(annotation):
        return annotation
    module = module_of(obj)
    beside = {c for c in vars(module).values() if holds_values(c)} if module else set()
    both = {c for c in beside if {"width", "heads"} <= set(map(role_of, fields_of(c)))}
    for found in (beside, both, {c for c in beside if _stem(c.__name__) and _stem(c.__name__) in obj.__name__}):
        if len(found) == 1:
            return found.pop()
    return None


def _stem(name: str) -> str:
    return ENDING.sub("", name)


def annotation_of(obj: Any, name: str, annotation: Any) -> Any:
    """Of a parameter; text, as under `from __future__ import annotations`, is looked up beside the target.

    Of `Config | None` it is Config.
    """
    if isinstance(annotation, str):
        module = module_of(obj)
        try:
            annotation = eval(annotation.strip("'\""), dict(vars(module)) if module else {})
        except Exception:  # a name that is there for type checkers only
            return None
    if typing.get_origin(annotation) not in (typing.Union, type(int | None)):
        return annotation
    args = [a for a in typing.get_args(annotation) if a is not type(None)]
    return next((a for a in args if holds_values(a)), args[0])


def instance_beside(obj: Any) -> Mapping[str, Any] | None:
    """A dict of sizes at the top of the target's module, as `CONFIG = {"emb_dim": 768, ...}`."""
    module = module_of(obj)
    dicts = [v for v in vars(module).values() if isinstance(v, dict)] if module else []
    found = [d for d in dicts if d and {"width", "heads"} <= {role_of(k) for k in d if isinstance(k, str)}]
    return found[0] if len(found) == 1 else None


def names_read(obj: Any, argument: str) -> tuple[dict[str, tuple[str, ...]], bool]:
    """What the code of a class reads of a config: dotted name -> (sections, name), and whether by `[...]`."""
    try:
        source = "".join(inspect.getsource(c) for c in getattr(obj, "__mro__", (obj,)) if _own(c, obj))
    except (OSError, TypeError):
        return {}, False
    dotted = re.findall(rf"\b{argument}((?:\.[A-Za-z_]\w*)+)(?!\w|\()", source)
    dotted += ["." + name for name in re.findall(rf"getattr\(\s*(?:self\.)?{argument}\s*,\s*[\"'](\w+)[\"']", source)]
    items = re.findall(rf"\b{argument}((?:\[[\"']\w+[\"']\])+)", source)
    items += [f"['{name}']" for name in re.findall(rf"\b{argument}\.get\(\s*[\"'](\w+)[\"']", source)]
    paths = {p: tuple(p.strip(".").split(".")) for p in dotted} | {p: tuple(re.findall(r"\w+", p)) for p in items}
    return paths, len(items) > len(dotted)


def _own(cls: Any, obj: Any) -> bool:
    return getattr(cls, "__module__", None) == getattr(obj, "__module__", None)


def module_of(obj: Any) -> ModuleType | None:
    """The module in which a target was written, through partials."""
    while hasattr(obj, "func"):
        obj = obj.func
    return sys.modules.get(getattr(obj, "__module__", ""), None)
