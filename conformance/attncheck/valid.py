"""Values that a user typed: what each must be, and what to type instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class BadSetting(Exception):
    """A setting that cannot be meant; the text is what the user reads."""


def closest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1, 0.4)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


def one_of(name: str, value: Any, known: Iterable[str]) -> Any:
    known = tuple(known)
    if value not in known:
        raise BadSetting(f"{name}={value!r} is not known{closest(str(value), known)}")
    return value


def file_path(name: str, value: Any) -> str | None:
    if value is not None and Path(value).is_dir():
        raise BadSetting(f"{name}={value!r} is a directory; expected a file, as report.json")
    return None if value is None else str(value)


def number(name: str, value: Any, form: type[int] | type[float]) -> Any:
    """The value as a number; True and text are none."""
    if isinstance(value, bool) or not isinstance(value, int | form):
        raise BadSetting(f"{name}={value!r}: expected {'a whole number' if form is int else 'a number'}, as {form(60)}")
    return form(value)


def above_zero(name: str, value: float) -> float:
    if not value > 0:
        raise BadSetting(f"{name}={value!r}: expected a number above 0")
    return value


def listed(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise BadSetting(f"{name}={value!r}: expected a list of globs, as ['mask.*', '!numeric.*']")
    return list(value)


def mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadSetting(f"{name}={value!r}: expected a table, as {{ key = value }}")
    return dict(value)
