"""Known deviations that the user has written down: `--target-expect=FILE`.

Strict on purpose. An entry that names nothing, has expired, or whose check passes again is an error, so that the file
never says more than is true. Every check that an entry matches is expected to fail on every target that it matches.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from attncheck.declarations import DTYPES
from attncheck.engine import Expectation, Target
from attncheck.settings import Request
from attncheck.valid import BadSetting, closest, one_of

KEYS = ("check", "target", "reason", "issue", "expires", "when")
CONDITIONS = ("torch", "device", "dtype")


@dataclass(frozen=True)
class Rule:
    """One [[expect]] of the file; `checks` are the ids that its glob matched."""

    checks: tuple[str, ...]
    target: str
    reason: str
    issue: str = ""
    when: dict[str, str] = field(default_factory=dict)


def read(file: Path, ids: Sequence[str], today: datetime.date | None = None) -> list[Rule]:
    """The rules of a file, all of it checked. `ids` are the checks that there are."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"target-expect={str(file)!r}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{file}: {error}") from None
    for key in content:
        one_of(f"{file.name}: key", key, ("expect",))
    entries = content.get("expect", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise BadSetting(f"{file.name}: expect={entries!r}: expected tables headed [[expect]]")
    today = today or datetime.date.today()
    return [_rule(entry, f"{file.name}: [[expect]] {n}", ids, today) for n, entry in enumerate(entries, 1)]


def _rule(entry: dict[str, Any], where: str, ids: Sequence[str], today: datetime.date) -> Rule:
    for key in entry:
        one_of(f"{where}: key", key, KEYS)
    check, target, reason = (_text(entry, key, where) for key in ("check", "target", "reason"))
    hits = tuple(i for i in ids if fnmatchcase(i, check))
    if not hits:
        raise BadSetting(f"{where}: check={check!r} matches no check{closest(check, ids)}")
    expires = entry.get("expires", datetime.date.max)
    if type(expires) is not datetime.date:
        raise BadSetting(f"{where}: expires={expires!r}: expected a date, as 2027-01-31 without quotes")
    if expires < today:
        raise BadSetting(f"{where}: check={check!r} expired on {expires}: drop it, or look again and set a later date")
    issue = _text(entry, "issue", where) if "issue" in entry else ""
    return Rule(hits, target, reason, issue, _conditions(entry.get("when", {}), where))


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadSetting(f"{where}: {key}={value!r}: expected a text; each entry has check, target and reason")
    return value


def _conditions(when: Any, where: str) -> dict[str, str]:
    if not isinstance(when, dict):
        raise BadSetting(f'{where}: when={when!r}: expected a table, as {{ torch = ">=2.5", dtype = "float16" }}')
    for key, value in when.items():
        one_of(f"{where}: when", key, CONDITIONS)
        if not isinstance(value, str):
            raise BadSetting(f"{where}: when.{key}={value!r}: expected a text")
    if "dtype" in when:
        one_of(f"{where}: when.dtype", when["dtype"], DTYPES)
    try:
        SpecifierSet(when.get("torch", ""))
    except InvalidSpecifier:
        hint = "expected versions, as '>=2.5' or '>=2.5,<2.9'"
        raise BadSetting(f"{where}: when.torch={when['torch']!r}: {hint}") from None
    return dict(when)


def foreseen(rules: Iterable[Rule], target: Target, request: Request) -> list[Expectation]:
    """What the rules say of one target, for the engine."""
    ours = [r for r in rules if fnmatchcase(target.spec, _literal(r.target)) and _holds(r.when, target, request)]
    return [Expectation(check, r.reason, r.issue) for r in ours for check in r.checks]


def _literal(glob: str) -> str:
    """A bracket in a target's glob is the [NAME] of a configuration, not a set of letters."""
    return glob.replace("[", "[[]")


def _holds(when: dict[str, str], target: Target, request: Request) -> bool:
    dtype = str(target.subjects[0].dtype).removeprefix("torch.") if target.subjects else request.dtype
    return (
        SpecifierSet(when.get("torch", "")).contains(str(torch.__version__), prereleases=True)
        and request.device.startswith(when.get("device", ""))
        and when.get("dtype", dtype) == dtype
    )
