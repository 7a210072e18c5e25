"""How a target is called: which argument is what, in which layout, and what comes back.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attncheck.spec import BadTarget
from attncheck_adapters.infer.names import call_role, extra_role

MASK_ROLES = ("mask", "padding", "lengths")
ASKING = ("latents", "latent", "queries", "query", "q", "tgt", "target", "decoder_input", "dec")


@dataclass
class Form:
    """The call of a target. `masks` are found by probing; an encoding is a key of `ENCODE`."""

    names: dict[str, str]  # role -> argument; query, key, value, memory, mask, padding, weights
    layout: str = "batch-first"
    output: str = "result"  # an expression on `result`
    weights: str | None = None
    masks: list[tuple[str, str, str]] = field(default_factory=list)  # (argument, native axes, encoding)
    given: dict[str, str] = field(default_factory=dict)  # argument -> expression, of what a call cannot do without
    plain: tuple[str, str, str] | None = None  # the mask that has to be given where nothing is masked
    extra: dict[str, Any] = field(default_factory=dict)

    def sources(self) -> tuple[str, ...]:
        if "key" in self.names and "value" in self.names:
            return ("self", "clones", "memory", "separate")
        if "memory" in self.names or "key" in self.names:
            return ("self", "memory") if "memory" in self.extra.get("optional", ()) else ("memory",)
        return ("self",)


def form_of(function: Callable[..., Any], label: str) -> Form:
    """Read the roles off the argument names."""
    names: dict[str, str] = {}
    optional: list[str] = []
    unread: list[str] = []
    wanted: dict[str, str] = {}
    demanded: list[str] = []
    asks = False
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    # Beside an attention mask, `mask` is the one of the tokens.
    beside = {"attn_mask", "attention_mask"} & {p.name for p in parameters}
    for parameter in parameters:
        role = "padding" if beside and parameter.name == "mask" else call_role(parameter.name)
        required = parameter.default is inspect.Parameter.empty
        if role is None and required and "query" not in names and parameter is parameters[0]:
            role = "query"
        if role == "query" and required and "memory" not in names and "query" in names:
            # Of two, latents are those that ask.
            latent = parameter.name.lower() in ASKING
            first = names["query"]
            names["memory"], names["query"] = (first, parameter.name) if latent else (parameter.name, first)
            continue
        if role is None or role in names:
            extra = extra_role(parameter.name)
            if required and extra is not None:
                wanted[parameter.name] = extra
                continue
            if required:
                raise BadTarget(
                    f"calling {label}: argument {parameter.name!r} has no default and a name of unknown meaning; "
                    f'describe the call by adapter = "pkg.testing:make" in [tool.attncheck.targets."{label}"]'
                )
            if extra is None and not isinstance(parameter.default, bool):
                unread.append(parameter.name)
            continue
        names[role] = parameter.name
        if role == "weights":
            asks = parameter.default is True
        if not required:
            optional.append(role)
        elif role in MASK_ROLES:
            demanded.append(role)
    if "query" not in names:
        raise BadTarget(f"calling {label}: no argument of {[p.name for p in parameters]} is known to be the query")
    others = [name for name in unread if "mask" in name.lower() and call_role(name) == "mask"]
    across = None
    if others and "memory" in optional:
        # The mask that was read is the one of self-attention.
        across = (names.pop("memory"), others[0])
        unread.append(f"with a memory, which goes with {others[0]}")
    extra = {"optional": tuple(optional), "unread": tuple(unread), "wanted": wanted, "required": tuple(demanded)}
    extra |= {"asks": asks, "across": across}
    return Form(names, extra=extra)


def told(error: BaseException) -> str:
    """The type, the text, and where it has no text the line that raised."""
    text = " ".join(str(error).split())[:300]
    if text:
        return f"{type(error).__name__}: {text}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"
