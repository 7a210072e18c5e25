"""What `attncheck init` writes: the configuration of a target that was met, or the start of an adapter for another."""

from __future__ import annotations

import textwrap
from typing import Any

from attncheck.declarations import DECLARED
from attncheck.engine import Target
from attncheck.spec import importing_code

MODULE = "attncheck_adapter"  # the file that a starter adapter is meant to be saved as
COULD = "# It was built and called without help. What was seen is declared here, so that a change of it is a finding."


def configuration(target: Target, init: dict[str, Any], config: str | None) -> str:
    """A table for pyproject.toml that says what was found, with the evidence of each convention."""
    lines = ["# For pyproject.toml.", COULD, f"[tool.attncheck.targets.{toml(target.spec)}]"]
    lines.append(f"kind = {toml(target.kind)}")
    if init:
        lines.append(f"init = {{ {', '.join(f'{k} = {toml(v)}' for k, v in init.items())} }}")
    if config is not None:
        lines.append(f"config = {toml(config)}")
    conventions = target.subjects[0].conventions
    decided = {k: c for k, c in conventions.items() if c.value and _can_be_declared(k, c.value)}
    lines += [f"# {key}: {c.evidence or 'by a name that has one meaning'}" for key, c in decided.items()]
    if decided:
        lines.append(f"declare = {{ {', '.join(f'{k} = {toml(c.value)}' for k, c in decided.items())} }}")
    lines += [f"# {k} is undecided: {c.evidence}" for k, c in conventions.items() if c.value is None]
    return "\n".join(lines) + "\n"


def _can_be_declared(key: str, value: str) -> bool:
    return key in DECLARED and value != "none" and (not DECLARED[key] or value in DECLARED[key])


def adapter_of(target: Target, known: Any) -> str:
    """The start of an adapter, with `...` where nothing is known, and the line of configuration that names it."""
    told = textwrap.wrap(target.error or "", 110, initial_indent="#   ", subsequent_indent="#   ")
    masks = f"; masks by their name: {', '.join(known.masks)}" if known.masks else ""
    gaps = f"  # fill in {', '.join(known.unknown)}" if known.unknown else ""
    call = f"self.module({', '.join(known.arguments)})"
    lines = [
        f"# {MODULE}.py: the start of an adapter for {target.spec}, which could not be met without help:",
        *told, *(importing_code(target.spec) or f"Target = ...  # {target.spec}").splitlines(), *known.imports, "", "",
        "class Adapter:",
        f"    width, heads = {known.width}, {known.heads}  # features of a token, and heads",
        '    sources = ("self",)  # of self, clones, memory and separate: the ways in which it may be called',
        f"    masks = ()  # of TS, N11S, N1TS, 1hTS and NhTS: those that `call` hands on{masks}",
        '    conventions = {"weights": "none"}  # what it promises, as {"causal": "top-left", "mask": "allowed"}', "",
        "    def __init__(self, **init):",
        f"        self.module = {known.build}", "",
        "    def call(self, query, key, value, allowed):  # (N,T,D), (N,S,D) twice; bool, True = may attend, or None",
        f"        return {call}, None  # the output (N,T,D), and the weights (N,h,T,S) or None{gaps}", "", "",
        "# For pyproject.toml:",
        f"# [tool.attncheck.targets.{toml(target.spec)}]",
        f'# adapter = "{MODULE}:Adapter"',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """A plain value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return repr(value) if isinstance(value, int | float) else '"' + str(value).replace('"', '\\"') + '"'
