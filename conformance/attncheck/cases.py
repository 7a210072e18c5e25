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

from attncheck.inputs import TIED
from attncheck.registry import Check
from attncheck.subject import MASK_AXES, Case, Subject

Row = tuple[Any, ...]
Size = tuple[tuple[int, int], tuple[int, int, int]]


def cases(check: Check, subject: Subject, profile: str, config: int = 0, seed: int = 0) -> list[Case]:
    """The covering table of a check on a subject: every pair of settings, every triple in `deep`.

    Second and third configurations of a target meet each setting of a smaller table at least once.
    """
    axes = _axes(check, subject, few=profile == "quick" or config > 0)
    strength = 1 if config else check.strength + (profile == "deep" and check.profile != "deep")
    rows = covering(tuple(axes.values()), strength)
    found = [_case(check, axes, row, subject, config, seed) for row in rows]
    return found if check.where is None else [case for case in found if check.where(case)]


def _axes(check: Check, subject: Subject, few: bool) -> dict[str, Row]:
    modes = tuple(m for m in (subject.modes[:3] if few else subject.modes) if m in check.modes)
    axes: dict[str, Row] = {
        "sources": _sources(subject, few), "size": tuple(sizes_of(subject, few)), "mode": modes,
        "strided": (False, True),
    }  # fmt: skip
    fitting = [n for n in axes["size"] if any(_fits(check, s, n) for s in axes["sources"])]
    axes["size"] = tuple(fitting[: check.sizes])
    axes.update({f"option {k}": tuple(v) for k, v in subject.options.items()})
    for name, values in check.axes.items():
        # A mask can only have the axes that the target takes.
        axes[f"axis {name}"] = tuple(v for v in values if name != "mask" or v not in MASK_AXES or v in subject.masks)
    return axes


def _sources(subject: Subject, few: bool) -> tuple[str, ...]:
    """The ways of calling it; of few, one with and one without a memory."""
    tied, apart = ([s for s in subject.sources if (s in TIED) == tied] for tied in (True, False))
    return tuple(tied[:1] + apart[:1] if few else tied + apart)


def _fits(check: Check, sources: str, size: Size) -> bool:
    return check.where is None or check.where(situation(sources, size))


def _case(check: Check, axes: Mapping[str, Row], values: Row, subject: Subject, config: int, seed: int) -> Case:
    row = dict(zip(axes, values, strict=True))
    options = {k.removeprefix("option "): v for k, v in row.items() if k.startswith("option ")}
    extra = {k.removeprefix("axis "): v for k, v in row.items() if k.startswith("axis ")}
    # Where the sizes of this row make no sense, the rest of it is asked at others.
    fitting = [n for n in axes["size"] if _fits(check, row["sources"], n)] or [row["size"]]
    size = row["size"] if row["size"] in fitting else fitting[0]
    plain = situation(row["sources"], size)
    case = plain.but(mode=row["mode"], strided=row["strided"], options=options, axes=extra, config=config)
    return reseeded(case, seed)


def reseeded(case: Case, seed: int) -> Case:
    """A seed that is the case's own: the same in every run and worker, another for other sizes."""
    return case.but(seed=zlib.crc32(f"{seed} {case}".encode()))


def sizes_of(subject: Subject, few: bool = False) -> list[Size]:
    """Sizes unequal so that no wrong axis fits, then the coincidences where faults hide."""
    h = max(subject.heads, 2)
    taken = {h, subject.kv_heads, *subject.widths, subject.widths[0] // h}
    a, b, c = [n for n in (3, 5, 7, 9, 11, 13, 15, 17, 19) if n not in taken][:3]
    alone = [(a, b), (1, 6), (h, 5), (2, 17), (h, h), (2, 1)]
    across = [(a, b, c), (1, 4, 6), (2, 7, 5), (h, 5, 7), (2, 6, 6), (2, 1, 5)]
    return list(zip(alone, across, strict=True))[: 2 if few else None]


def situation(sources: str, size: Size) -> Case:
    """Sizes in self-attention are (N,T), in cross-attention (N,T,S)."""
    (N, T), across = size
    return Case(sources, N, T, T) if sources in TIED else Case(sources, *across)


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
        lambda case: case.but(mode=next(m for m in subject.modes if m in check.modes)),
        lambda case: case.but(strided=False),
        *(option(name, values[0]) for name, values in subject.options.items()),
        *(axis(name, values[0]) for name, values in check.axes.items() if name != "mask"),
    ]


def smaller(case: Case) -> Iterator[Case]:
    """The same settings in fewer samples and positions, smallest first."""
    tied = case.tied
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
        case = _case(check, axes, tuple(row[k] for k in axes), subject, 0, 0)
        T = row["T"]
        return reseeded(case.but(N=row["N"], T=T, S=T if case.tied else row["S"], seed=0), 0)

    built = st.fixed_dictionaries({**sizes, **rest}).map(build)
    return built if check.where is None else built.filter(check.where)
