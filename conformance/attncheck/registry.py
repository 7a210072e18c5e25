"""The record of a check, and the decorator that makes one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attncheck.subject import MODES, NOTHING, Case, Subject

Body = Callable[[Subject, Case, Subject | None], None]
CHECKS: dict[str, Check] = {}
SECTION = re.compile(r"^(Why|Fix|Blind|Earns):", re.MULTILINE)


@dataclass(frozen=True)
class Check:
    """One property. Its first docstring line is the claim; then come free text and sections."""

    id: str
    run: Body
    kinds: tuple[str, ...]
    faults: tuple[str, ...]
    needs: tuple[str, ...] = ()
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: Callable[[Case], bool] | None = None
    severity: str = "high"
    strength: int = 2
    profile: str = "quick"
    modes: tuple[str, ...] = MODES
    sizes: int = 99

    @property
    def claim(self) -> str:
        return (self.run.__doc__ or self.id).strip().splitlines()[0].rstrip(".")

    @property
    def text(self) -> str:
        """The free paragraphs between the claim and the first section."""
        return self._parts[0].partition("\n")[2].strip()

    def section(self, name: str) -> str:
        """What the docstring says under `Why:`, `Fix:`, `Blind:` or `Earns:`; empty where it says nothing."""
        return dict(zip(self._parts[1::2], self._parts[2::2], strict=True)).get(name, "").strip()

    @property
    def _parts(self) -> list[str]:
        """Claim and free text, then by turns the name of a section and its text."""
        return SECTION.split(inspect.cleandoc(self.run.__doc__ or self.id))


def check(
    id: str,
    *,
    kinds: tuple[str, ...] = ("attention", "kernel"),
    faults: tuple[str, ...],
    needs: tuple[str, ...] = (),
    axes: Mapping[str, tuple[Any, ...]] = NOTHING,
    where: Callable[[Case], bool] | None = None,
    severity: str = "high",
    strength: int = 2,
    profile: str = "quick",
    modes: tuple[str, ...] = MODES,
    sizes: int = 99,
) -> Callable[[Body], Body]:
    """Register `f(subject, case, oracle)` as the check `family.property`.

    faults: ids of the faults that it must catch; a check that was never seen to fail is not registered.
    needs: what the subject must have ("mask", "causality"), else the check is inapplicable.
    axes: further settings, walked with the modes and sizes of the covering table.
    where: which situations (sources, N, T, S) make sense; all where None.
    strength: 2 where every pair of settings is to be met, 1 where each setting once is enough.
    modes: those of MODES in which it makes sense.  sizes: of how many sizes at most.
    profile: the least effort in which it runs; "deep" for what takes seconds.
    """
    if not faults:
        raise TypeError(f"check {id!r}: faults=() names nothing that it catches; give at least one fault id")
    if id in CHECKS:
        raise ValueError(f"check id={id!r} is taken by {CHECKS[id].run.__module__}; choose another id")

    def register(run: Body) -> Body:
        CHECKS[id] = Check(
            id,
            run,
            tuple(kinds),
            tuple(faults),
            tuple(needs),
            dict(axes),
            where,
            severity,
            strength,
            profile,
            modes,
            sizes,
        )
        return run

    return register


def checks_of(kind: str) -> list[Check]:
    """All checks of a kind, in the order of their ids."""
    package = importlib.import_module("attncheck.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"attncheck.checks.{module.name}")
    return [CHECKS[id] for id in sorted(CHECKS) if kind in CHECKS[id].kinds]
