"""The kill matrix as Markdown: which check catches which fault, and what each check alone catches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from attncheck.pages import cell
from attncheck.registry import Check

# A fault, the checks that caught it, and those that must.
Row = tuple[str, list[str], list[str]]
INTRO = """\
# The kill matrix

A fault is the reference with one step replaced. {checks} checks ran on {faults} faults.
The checks that must catch a fault ran in the default profile, the others in the quick one."""


def matrix(rows: Sequence[Row], checks: Sequence[Check], summaries: Mapping[str, str]) -> str:
    parts = [INTRO.format(checks=len(checks), faults=len(rows)), _alone(rows, checks)]
    for name, family in groupby(sorted(rows), key=lambda row: _family(row[0])):
        parts += [f"## Faults of {name}", _table(family, summaries)]
    return "\n\n".join(parts) + "\n"


def _alone(rows: Sequence[Row], checks: Sequence[Check]) -> str:
    """What a check adds to the others; one that adds no fault says why it earns its place."""
    lines = ["## What each check alone catches", "", "| check | catches | alone |", "| --- | --- | --- |"]
    for check in checks:
        only = [fault for fault, caught, _ in rows if caught == [check.id]]
        earns = check.section("Earns") or "why it is kept is not said."
        reason = ", ".join(only) or f"none: {earns[:1].lower()}{earns[1:]}"
        count = sum(check.id in caught for _, caught, _ in rows)
        lines.append(f"| [{check.id}](checks/{check.id}.md) | {count} | {cell(reason)} |")
    return "\n".join(lines)


def _table(rows: Iterable[Row], summaries: Mapping[str, str]) -> str:
    lines = ["| fault | what is wrong | must be caught by | also caught by |", "| --- | --- | --- | --- |"]
    for fault, caught, expected in rows:
        must = ", ".join(id if id in caught else f"{id} **(missed)**" for id in expected)
        also = _by_family([id for id in caught if id not in expected])
        lines.append(f"| {fault} | {cell(summaries.get(fault, ''))} | {must} | {also} |")
    return "\n".join(lines)


def _by_family(ids: Iterable[str]) -> str:
    """`mask: polarity, broadcast; numeric: oracle`"""
    grouped = groupby(sorted(ids), key=_family)
    return "; ".join(f"{name}: {', '.join(id.partition('.')[2] for id in group)}" for name, group in grouped)


def _family(id: str) -> str:
    return id.partition(".")[0]
