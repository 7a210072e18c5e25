"""The tables of situations and modes that a check walks, and the draws of the deep profile.

N batch, T queries, S keys, h heads, d head width
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from attncheck.registry import Check
from attncheck.subject import MASK_AXES, Case, Subject

Row = tuple[Any, ...]


def cases(check: Check, subject: Subject, profile: str, config: int = 0, seed: int = 0) -> list[Case]:
    """The covering table of a check on a subject: every pair of settings, every triple in `deep`.

    Second and third configurations of a target meet each setting of a smaller table at least once.
    """
    axes = _axes(check, subject, few=profile == "quick" or config > 0)
    strength = 1 if config else 3 if profile == "deep" else 2
    rows = covering(tuple(axes.values()), strength)
    return [_case(dict(zip(axes, row, strict=True)), subject, config, seed) for row in rows]


def _axes(check: Check, subject: Subject, few: bool) -> dict[str, Row]:
    situations = [s for s in situations_of(subject, few) if check.where is None or check.where(Case(*s))]
    modes = subject.modes[:3] if few else subject.modes
    axes: dict[str, Row] = {"situation": tuple(situations), "mode": modes, "strided": (False, True)}
    axes.update({f"option {k}": tuple(v) for k, v in subject.options.items()})
    for name, values in check.axes.items():
        # A mask can only have the axes that the target takes.
        axes[f"axis {name}"] = tuple(v for v in values if name != "mask" or v not in MASK_AXES or v in subject.masks)
    return axes


def _case(row: Mapping[str, Any], subject: Subject, config: int, seed: int) -> Case:
    options = {k.removeprefix("option "): v for k, v in row.items() if k.startswith("option ")}
    axes = {k.removeprefix("axis "): v for k, v in row.items() if k.startswith("axis ")}
    sources, N, T, S = row["situation"]
    case = Case(sources, N, T, S, row["mode"], row["strided"], options, axes, config)
    return reseeded(case, seed)


def reseeded(case: Case, seed: int) -> Case:
    """A seed that is the case's own: the same in every run and worker, another for other sizes."""
    return case.but(seed=zlib.crc32(f"{seed} {case}".encode()))


def situations_of(subject: Subject, few: bool = False) -> list[tuple[str, int, int, int]]:
    """(sources, N, T, S): sizes unequal so that no wrong axis fits, then the coincidences where faults hide."""
    h = max(subject.heads, 2)
    taken = {h, subject.kv_heads, *subject.widths, subject.widths[0] // h}
    a, b, c = [n for n in (3, 5, 7, 9, 11, 13, 15, 17, 19) if n not in taken][:3]
    alone = [(a, b), (1, 6), (h, 5), (2, 17), (h, h), (2, 1)]
    across = [(a, b, c), (1, 4, 6), (2, 7, 5), (h, 5, 7), (2, 1, 5), (2, 6, 6)]
    tied = [s for s in ("self", "clones") if s in subject.sources]
    apart = [s for s in ("memory", "separate") if s in subject.sources]
    if few:
        alone, across = alone[:2], across[: 1 if tied else 2]
    rows = [(s, N, T, T) for s, (N, T) in zip(itertools.cycle(tied), alone, strict=False)]
    return rows + [(s, N, T, S) for s, (N, T, S) in zip(itertools.cycle(apart), across, strict=False)]


@lru_cache(maxsize=256)
def covering(axes: tuple[Row, ...], strength: int) -> list[Row]:
    """Rows such that every combination of values of any `strength` axes occurs: greedy, deterministic."""
    if not all(axes):
        return []
    groups = list(itertools.combinations(range(len(axes)), min(strength, len(axes))))
    open_ = {(g, c): None for g in groups for c in itertools.product(*(range(len(axes[i])) for i in g))}
    rows = []
    while open_:
        group, choice = next(iter(open_))
        chosen = dict(zip(group, choice, strict=True))
        for i in set(range(len(axes))) - set(group):
            ready = [g for g in groups if i in g and all(j in chosen or j == i for j in g)]
            gains = [_gain(open_, ready, chosen, i, v) for v in range(len(axes[i]))]
            chosen[i] = gains.index(max(gains))
        for g in groups:
            open_.pop((g, tuple(chosen[i] for i in g)), None)
        rows.append(tuple(axes[i][chosen[i]] for i in range(len(axes))))
    return rows


def _gain(open_: Mapping[Any, None], ready: list[Row], chosen: Mapping[int, int], i: int, v: int) -> int:
    """How many open combinations the value v of axis i would settle, given what is chosen so far."""
    return sum((g, tuple(v if j == i else chosen[j] for j in g)) in open_ for g in ready)


def plainer(check: Check, subject: Subject) -> list[Callable[[Case], Case]]:
    """Changes that keep the sizes and put one setting at its first value: mode, strides, each option and axis."""

    def option(name: str, value: Any) -> Callable[[Case], Case]:
        return lambda case: case.but(options={**case.options, name: value})

    def axis(name: str, value: Any) -> Callable[[Case], Case]:
        return lambda case: case.but(axes={**case.axes, name: value})

    return [
        lambda case: case.but(mode=subject.modes[0]),
        lambda case: case.but(strided=False),
        *(option(name, values[0]) for name, values in subject.options.items()),
        *(axis(name, values[0]) for name, values in check.axes.items() if name != "mask"),
    ]


def smaller(case: Case) -> Iterator[Case]:
    """The same settings in fewer samples and positions, smallest first."""
    tied = case.sources in ("self", "clones")
    sizes = [
        (N, T, S)
        for N in range(1, case.N + 1)
        for T in range(1, min(case.T, 5) + 1)
        for S in ([T] if tied else range(1, min(case.S, 5) + 1))
    ]
    for N, T, S in sorted(sizes, key=lambda s: (s[0] * s[1] * s[2], s)):
        if (N, T, S) != (case.N, case.T, case.S):
            yield reseeded(case.but(N=N, T=T, S=S, seed=0), 0)


def drawn_cases(check: Check, subject: Subject) -> st.SearchStrategy[Case]:
    """Random cases for the deep profile, by Hypothesis."""
    axes = _axes(check, subject, few=False)
    sizes = {n: st.sampled_from(range(1, 9)) for n in ("N", "T", "S")}
    rest = {k: st.sampled_from(v) for k, v in axes.items()}

    def build(row: dict[str, Any]) -> Case:
        case = _case(row, subject, 0, 0)
        T = row["T"]
        S = T if case.sources in ("self", "clones") else row["S"]
        case = case.but(N=row["N"], T=T, S=S, seed=0)
        return reseeded(case, 0)

    built = st.fixed_dictionaries({**sizes, **rest}).map(build)
    return built if check.where is None else built.filter(check.where)
