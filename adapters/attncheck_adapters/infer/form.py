"""How a target is called: which argument is what, in which layout, and what comes back.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attncheck.spec import BadTarget
from attncheck_adapters.infer.names import call_role, extra_role

TABLES = ("tables", "cos", "sin", "complex", "angles")  # of rotations
MASK_ROLES = ("mask", "padding", "lengths")
MEMORY_MASK = re.compile(r"context|mem|enc|cross|src|source|kv", re.I)
CAUSAL_FLAGS = ("is_causal", "causal", "use_causal_mask")
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
    flag: str | None = None  # the argument that asks for causality, and its corner
    flag_corner: str = "top-left"
    extra: dict[str, Any] = field(default_factory=dict)

    def sources(self) -> tuple[str, ...]:
        if "key" in self.names and "value" in self.names:
            return ("self", "clones", "memory", "separate")
        if "memory" in self.names or "key" in self.names:
            return ("self", "memory") if "memory" in self.extra.get("optional", ()) else ("memory",)
        return ("self",)


def form_of(function: Callable[..., Any], label: str) -> Form:
    """Read the roles off the argument names."""
    reader = Reader(label)
    parameters = inspect.signature(function).parameters.values()
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    # Beside an attention mask, `mask` is the one of the tokens.
    beside = bool({"attn_mask", "attention_mask"} & {p.name for p in plain})
    for parameter in plain:
        reader.read(parameter, parameter is plain[0], beside)
    if len(plain) < len(parameters):
        reader.read_through(getattr(function, "__self__", None))
    if "query" not in reader.names:
        raise BadTarget(f"calling {label}: no argument of {[p.name for p in plain]} is known to be the query")
    reader.part_masks()
    return reader.form()


class Reader:
    """The arguments of one call on their way to roles."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.names: dict[str, str] = {}
        self.optional: list[str] = []
        self.demanded: list[str] = []
        self.unread: list[str] = []
        self.wanted: dict[str, str] = {}
        self.masks: list[str] = []  # every argument of the name of an attention mask
        self.extra: dict[str, Any] = {"asks": False, "across": None, "flag": None, "spare": {}}

    def read(self, parameter: inspect.Parameter, first: bool, beside: bool) -> None:
        name, required = parameter.name, parameter.default is inspect.Parameter.empty
        role = "padding" if beside and name == "mask" else call_role(name)
        role = "query" if role is None and required and first else role
        if role == "mask":
            self.masks.append(name)
        if role == "query" and required and "query" in self.names and "memory" not in self.names:
            # Of two, latents are those that ask.
            other = self.names["query"]
            asks = name.lower() in ASKING
            self.names["memory"], self.names["query"] = (other, name) if asks else (name, other)
        elif role is None or role in self.names:
            self.leave(parameter, required)
        else:
            self.names[role] = name
            self.extra["asks"] |= role == "weights" and parameter.default is True
            self.optional += [] if required else [role]
            self.demanded += [role] if required and role in MASK_ROLES else []

    def leave(self, parameter: inspect.Parameter, required: bool) -> None:
        """An argument that is no token, mask or flag for weights."""
        name, extra = parameter.name, extra_role(parameter.name)
        if name.lower() in CAUSAL_FLAGS and not parameter.default:
            self.extra["flag"] = name
        if required and extra is not None:
            self.wanted[name] = extra
        elif required and "memory" not in self.names and not {"key", "value"} & set(self.names) and not self.masks:
            # The second of two tensors that must be there is what the first looks at.
            self.names["memory"] = name
        elif required:
            raise BadTarget(
                f"calling {self.label}: argument {name!r} has no default and a name of unknown meaning; "
                f'describe the call by adapter = "pkg.testing:make" in [tool.attncheck.targets."{self.label}"], '
                f"which `attncheck init {self.label}` starts"
            )
        elif extra in TABLES:
            self.extra["spare"][name] = extra
        elif extra is None and not isinstance(parameter.default, bool):
            self.unread.append(name)

    def read_through(self, module: Any) -> None:
        """Masks that `**kwargs` hands on to a module inside."""
        for part in list(module.modules())[1:] if hasattr(module, "modules") else ():
            for parameter in inspect.signature(part.forward).parameters.values():
                role = call_role(parameter.name)
                if role in MASK_ROLES and role not in self.names and type(part).__module__ == type(module).__module__:
                    self.names[role] = parameter.name
                    self.optional.append(role)

    def part_masks(self) -> None:
        """Where masks of the own tokens and of a memory are two arguments, the call is one without the memory."""
        if len(self.masks) < 2 or "memory" not in self.optional:
            return
        across = [n for n in self.masks if MEMORY_MASK.search(n)] or [n for n in self.masks if n != self.names["mask"]]
        own = [n for n in self.masks if n not in across]
        if own:
            self.extra["across"] = (self.names.pop("memory"), across[0])
            self.names["mask"] = own[0]
            self.unread = [n for n in self.unread if n != own[0]]
            self.unread.append(f"with a memory, which goes with {across[0]}")

    def form(self) -> Form:
        extra = {"optional": tuple(self.optional), "unread": tuple(self.unread), "wanted": self.wanted}
        return Form(self.names, extra={**extra, "required": tuple(self.demanded), **self.extra})


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
