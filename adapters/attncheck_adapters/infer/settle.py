"""A plain call that works: what it cannot do without is tried, the commonest form first.

N batch, T queries, S keys
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attncheck_adapters.infer import extras
from attncheck_adapters.infer.probe import S_, T_, Probe
from attncheck_adapters.infer.results import find_parts

# Masks that have to be there: the argument's axes, and what says that nothing is blocked.
PLAIN = [(axes, said) for axes in ("TS", "11TS", "N11S", "N1TS", "NTS", "NS", "N1S") for said in ("allowed", "blocked")]


def settle(probe: Probe, head_width: int) -> BaseException | None:
    """Bring the form to where its plain call is answered; what the first try raised where none is."""
    problem = None
    for lengths in ((S_, T_),) if probe.heads is None else ((S_,), (T_,)):  # equal lengths hide which axis is time
        for change, words in CHANGES:
            for _ in change(probe, head_width):
                answered, raised = _tried(probe, lengths)
                if answered:
                    _needs_memory(probe)
                    return None
                problem = problem or raised
                probe.tried[words] = None
    refused: BaseException | None = probe.form.extra.pop("refused", problem)
    return refused


def _tried(probe: Probe, lengths: tuple[int, ...]) -> tuple[bool, BaseException | None]:
    """Whether any way of calling gives an output, and what the first that did not raised."""
    ways = [s for s in probe.sources()[::-1] if probe.heads is None or s in ("memory", "separate")]
    inputs = [probe.inputs(sources, S=S) for sources in ways for S in lengths]
    results = [(x, probe.raw(x)) for x in inputs]
    raised = next((r for _, r in results if isinstance(r, BaseException)), None)
    given = ((x, r) for x, r in results if not isinstance(r, BaseException))
    return any(find_parts(r, x, probe.form.layout)[0] for x, r in given), raised


def _needs_memory(probe: Probe) -> None:
    """A memory that is optional by its default alone: the call without it is refused."""
    optional = probe.form.extra.get("optional", ())
    if "memory" in optional and isinstance(probe.raw(probe.inputs("self", S=T_)), BaseException):
        probe.form.extra["optional"] = tuple(role for role in optional if role != "memory")


def _as_it_is(probe: Probe, head_width: int) -> Iterator[None]:
    if not probe.form.extra["wanted"]:
        yield


def _across(probe: Probe, head_width: int) -> Iterator[None]:
    """A class that is built for a memory: with the memory, and the mask that goes with it."""
    across = probe.form.extra.get("across")
    if across is not None:
        kept = dict(probe.form.names)
        probe.form.names |= {"memory": across[0], "mask": across[1]}
        yield
        probe.form.names = kept


def _with_extras(probe: Probe, head_width: int) -> Iterator[None]:
    """Rotary tables and the like. Proper rotations depend on distances alone, so that a shift does not show."""
    # Tables that have a default may still be needed.
    probe.form.extra["wanted"] = probe.form.extra["wanted"] | probe.form.extra["spare"]
    if not probe.form.extra["wanted"]:
        return
    tried, problem = [], None
    inputs = probe.inputs(probe.sources()[0], S=T_)
    for given in extras.candidates(probe.form, probe.target, head_width, probe.n_heads):
        probe.form.given, probe.shift = given, 0
        result = probe.raw(inputs)
        problem, before = result if problem is None else problem, _first_tensor(result)
        probe.shift = 3
        after = None if before is None else _first_tensor(probe.raw(inputs))
        probe.shift = 0
        if before is None:
            continue
        tried.append(given)
        if after is not None and after.shape == before.shape and torch.allclose(before, after, atol=1e-4, rtol=1e-3):
            yield
    for probe.form.given in tried[:1]:
        yield
    if not tried and isinstance(problem, BaseException):
        # What a call with them raised says more than that they are missing.
        probe.form.extra["refused"] = problem


def _with_mask(probe: Probe, head_width: int) -> Iterator[None]:
    """A mask without a default: one that blocks nothing. What True means in it is asked later."""
    required = probe.form.extra.get("required", ())
    if not required:
        return
    argument = probe.form.names[required[0]]
    tried = extras.candidates(probe.form, probe.target, head_width, probe.n_heads)
    for given in itertools.islice(tried, 40) if probe.form.extra["wanted"] else ({},):
        probe.form.given = given
        for axes, said in PLAIN:
            for prefix in ("", "int-"):
                probe.form.plain = (argument, axes, prefix + said)
                if _rows_differ(probe):
                    yield
        for axes in ("TS", "11TS", "N11S", "N1TS", "NTS"):
            probe.form.plain = (argument, axes, "additive")
            yield
    probe.form.plain = None


def _rows_differ(probe: Probe) -> bool:
    """Whether queries get outputs of their own: where every key is blocked, a finite fill makes them all equal."""
    sources = probe.sources()[-1]
    output = _first_tensor(probe.raw(probe.inputs(sources, S=S_ if sources in ("memory", "separate") else T_)))
    return output is not None and output.ndim > 2 and bool((output[:, 0] != output[:, 1]).any())


def _by_head(probe: Probe, head_width: int) -> Iterator[None]:
    """A kernel whose tensors are (N,T,h,d)."""
    if probe.heads is not None and probe.form.layout == "batch-first":
        probe.form.layout = "heads-last"
        yield
        probe.form.layout = "batch-first"


def _by_sample(probe: Probe, head_width: int) -> Iterator[None]:
    """A class that takes one sample (T,D) at a time."""
    if probe.heads is None:
        probe.form.extra["unbatched"] = True
        yield
        probe.form.extra["unbatched"] = False


def _first_tensor(result: Any) -> Tensor | None:
    if isinstance(result, Tensor):
        return result
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, tuple | list):
        return next((x for x in result if isinstance(x, Tensor)), None)
    return None


# The commonest first, with what is said of it where it was of no use.
CHANGES = (
    (_as_it_is, "tokens alone"),
    (_across, "a memory with its own mask"),
    (_with_extras, "tables of positions and the like"),
    (_with_mask, "a mask that blocks nothing"),
    (_by_head, "heads behind positions"),
    (_by_sample, "one sample at a time"),
)
