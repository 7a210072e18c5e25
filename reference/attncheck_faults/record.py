"""The record of a fault: the reference with exactly one step replaced."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from attncheck_reference import DotProductAttention, MultiHeadAttention

FAULTS: dict[str, Fault] = {}
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Fault:
    """One fault. `run(module, sound, *arguments)` stands for one step; `sound` is the step as it should be.

    init: what the reference must be built with for the fault to exist.  bugs: entries of the list of public bugs.
    path: the option that a target must have for the fault to show: "weights" (asked for or not), "additive".
    declare: what the reference promises beside, where the fault is that it does not keep it.
    """

    id: str
    step: str
    run: Callable[..., Any]
    bugs: tuple[str, ...]
    init: dict[str, Any]
    path: str = ""
    declare: Mapping[str, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").strip().rstrip(".")

    @property
    def kinds(self) -> tuple[str, ...]:
        """A step of the kernel breaks a kernel too; the way in and out of heads only an attention has."""
        kernel = self.step in vars(DotProductAttention) and self.step not in ("forward", "__init__")
        return ("attention", "kernel") if kernel else ("attention",)

    def broken(self, base: type[DotProductAttention] = MultiHeadAttention) -> type[DotProductAttention]:
        """The class `base` with the step replaced."""
        step, run = self.step, self.run

        def method(module: DotProductAttention, *args: Any, **kwargs: Any) -> Any:
            return run(module, getattr(super(cls, module), step), *args, **kwargs)

        cls: type[DotProductAttention] = type("Broken", (base,), {step: method, "fault": self.id})
        return cls


def fault(
    id: str,
    *,
    step: str,
    bugs: tuple[str, ...] = (),
    path: str = "",
    declare: Mapping[str, str] = NOTHING,
    **init: Any,
) -> Callable[[Callable[..., Any]], Fault]:
    """Register `f(module, sound, *arguments)` in place of one step of the reference."""
    if id in FAULTS:
        raise ValueError(f"fault id={id!r} is taken by {FAULTS[id].run.__module__}")
    if not hasattr(MultiHeadAttention, step):
        raise ValueError(f"fault {id!r}: step={step!r} is no step of the reference")

    def register(run: Callable[..., Any]) -> Fault:
        FAULTS[id] = Fault(id, step, run, bugs, init, path, declare)
        return FAULTS[id]

    return register


def faults() -> dict[str, Fault]:
    """All faults, by id. A file in this package is found; nothing lists it."""
    package = importlib.import_module("attncheck_faults")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"attncheck_faults.{module.name}")
    return FAULTS
