"""The record of a check, and the decorator that makes one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attncheck.subject import NOTHING, Case, Subject

Body = Callable[[Subject, Case, Subject | None], None]
CHECKS: dict[str, Check] = {}


@dataclass(frozen=True)
class Check:
    """One property. Its first docstring line is the claim, the rest what it cannot see."""

    id: str
    run: Body
    kinds: tuple[str, ...]
    faults: tuple[str, ...]
    needs: tuple[str, ...] = ()
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: Callable[[Case], bool] | None = None
    severity: str = "high"

    @property
    def claim(self) -> str:
        return (self.run.__doc__ or self.id).strip().splitlines()[0].rstrip(".")

    @property
    def text(self) -> str:
        return "\n".join(line.strip() for line in (self.run.__doc__ or "").strip().splitlines()[1:]).strip()


def check(
    id: str,
    *,
    kinds: tuple[str, ...] = ("attention", "kernel"),
    faults: tuple[str, ...],
    needs: tuple[str, ...] = (),
    axes: Mapping[str, tuple[Any, ...]] = NOTHING,
    where: Callable[[Case], bool] | None = None,
    severity: str = "high",
) -> Callable[[Body], Body]:
    """Register `f(subject, case, oracle)` as the check `family.property`.

    faults: ids of the faults that it must catch; a check that was never seen to fail is not registered.
    needs: what the subject must have ("mask", "causality"), else the check is inapplicable.
    axes: further settings, walked with the modes and sizes of the covering table.
    where: which situations (sources, N, T, S) make sense; all where None.
    """
    if not faults:
        raise TypeError(f"check {id!r}: faults=() names nothing that it catches; give at least one fault id")
    if id in CHECKS:
        raise ValueError(f"check id={id!r} is taken by {CHECKS[id].run.__module__}; choose another id")

    def register(run: Body) -> Body:
        CHECKS[id] = Check(id, run, tuple(kinds), tuple(faults), tuple(needs), dict(axes), where, severity)
        return run

    return register


def checks_of(kind: str) -> list[Check]:
    """All checks of a kind, in the order of their ids."""
    package = importlib.import_module("attncheck.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"attncheck.checks.{module.name}")
    return [CHECKS[id] for id in sorted(CHECKS) if kind in CHECKS[id].kinds]
