"""Conventions that are seen by calling a target: output, weights, layout, causality.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attncheck.spec import BadTarget
from attncheck.subject import Convention
from attncheck_adapters.infer.form import told
from attncheck_adapters.infer.probe import S_, T_, Probe
from attncheck_adapters.infer.results import by_head, find_parts, parts_in


def find_output(probe: Probe, label: str) -> None:
    """Which part of the result is the output, and which the weights, by their shapes."""
    drop_refused_memory(probe)
    if not probe.sources():
        q, k, _ = probe.widths
        raise BadTarget(
            f"calling {label}: one argument takes queries and memory, but its weights have widths {q} and {k}; "
            f'describe the call by adapter = "pkg.testing:make" in [tool.attncheck.targets."{label}"]'
        )
    sources = probe.sources()[-1]
    inputs = probe.inputs(sources)
    result = probe.raw(inputs)
    if isinstance(result, BaseException) and inputs.query.shape[-2] != inputs.key.shape[-2]:
        inputs = probe.inputs("memory" if "memory" in probe.sources() else sources, S=T_)
        result = probe.raw(inputs)
    if isinstance(result, BaseException):
        raise BadTarget(f"the plain call of {label} raised {told(result)}")
    outputs, weights = find_parts(result, inputs, probe.form.layout)
    if not outputs:
        shapes = [tuple(x.shape) for _, x in parts_in(result)] or type(result).__name__
        raise BadTarget(f"the plain call of {label} gave {shapes}, expected a tensor {(*inputs.query.shape[:-1], 'D')}")
    probe.form.output = outputs[0]
    probe.form.weights = weights[0] if weights else None


def drop_refused_memory(probe: Probe) -> None:
    """A memory argument that is optional and raises when it is given belongs to another use of the class."""
    optional = "memory" in probe.form.names and "memory" in probe.form.extra.get("optional", ())
    if optional and all(isinstance(probe.raw(probe.inputs("memory", S=S)), BaseException) for S in (S_, T_)):
        probe.form.extra["unread"] = (*probe.form.extra["unread"], probe.form.names.pop("memory"))


def find_weights(probe: Probe) -> None:
    """Where the weights are when they are asked for: the flag changes the result."""
    flag = probe.form.names.get("weights")
    if flag is None:
        return
    inputs = probe.inputs(probe.sources()[0])
    plain, asked = (probe.raw(inputs, **{flag: value}) for value in (False, True))
    if isinstance(plain, BaseException) or isinstance(asked, BaseException):
        probe.form.names.pop("weights")
        return
    outputs = [find_parts(result, inputs, probe.form.layout)[0] for result in (plain, asked)]
    found = find_parts(asked, inputs, probe.form.layout)[1]
    if not found and re.search("weight|att|prob", flag) and "score" not in flag and outputs[1]:
        # What a flag of that name gives is meant to be the weights, whatever its numbers are.
        lead, S = tuple(inputs.query.shape[:-1]), inputs.key.shape[-2]
        found = [p for p, x in parts_in(asked) if x.ndim == 4 and by_head(p, x, lead, S) == p]
    if not outputs[0] or not outputs[1] or not found:
        probe.form.names.pop("weights")
        return
    name = "result" if outputs[0][0] == outputs[1][0] else None
    probe.form.output = outputs[1][0] if name else f"({outputs[1][0]} if weights else {outputs[0][0]})"
    probe.form.weights = f"({found[0]} if weights else None)"


def find_layout(probe: Probe) -> Convention:
    """Which axis is time: editing one cell moves its own row (batch first) or column (sequence first)."""
    moved = {}
    for layout in ("batch-first", "seq-first"):
        probe.form.layout = layout
        inputs = probe.inputs(probe.sources()[0], S=T_)
        before, after = probe.output(inputs), probe.output(inputs.resampled(1, seed=5))
        if before is None or after is None or before.ndim != 3 or before.shape != after.shape:
            continue
        rows = (before != after).any(-1)
        moved[layout] = bool(rows[1].any()) and not bool(rows[0].any() or rows[2].any())
    probe.form.layout = "seq-first" if moved.get("seq-first") and not moved.get("batch-first") else "batch-first"
    evidence = f"editing one sample moved only that sample when read as {probe.form.layout}"
    return Convention(
        probe.form.layout, "observed", evidence if moved.get(probe.form.layout) else "undecided: samples mix"
    )


def find_causality(probe: Probe) -> tuple[Convention, Convention | None]:
    """The built-in pattern and window; where none fits, the nearest of causal and not."""
    sources = probe.sources()[0]
    # Longer than any case that the checks draw, so that a wider window cannot matter to them.
    for length in (20, 9):
        moved = probe.movement(probe.inputs(sources, N=2, T=length, S=length))
        if moved is not None:
            break
    else:
        return Convention("no", "observed", "undecided: probes at 20 and at 9 positions were refused"), None
    seen_TS = (moved > 0).any(0)
    if not seen_TS.any():
        return Convention("no", "observed", "undecided: no key acts on any query"), None
    if sources == "self":
        seen_TS = seen_TS | torch.eye(length, dtype=torch.bool)
    evidence = f"dependence of {length} queries on {length} keys"
    for causal, window, want_TS in _legal_patterns(length):
        if torch.equal(want_TS, seen_TS):
            seen = Convention(_corner(probe, causal), "observed", evidence)
            return seen, None if window is None else Convention(window, "observed", evidence)
    future = float(seen_TS.triu(1).float().sum()) / (length * (length - 1) / 2)
    nearest = "top-left" if future < 0.5 else "no"
    return Convention(nearest, "observed", f"{evidence}: no legal pattern fits, {nearest} is the nearest"), None


def _legal_patterns(n: int) -> Iterator[tuple[str, str | None, Tensor]]:
    """(causal, window, pattern (T,S)) of everything that the contract has a name for."""
    offset = torch.arange(n) - torch.arange(n)[:, None]
    yield "no", None, torch.ones(n, n, dtype=torch.bool)
    yield "top-left", None, offset <= 0
    for width in range(2, n):
        yield "top-left", str(width), (offset <= 0) & (offset > -width)
        yield f"prefix:{width - 1}", None, (offset <= 0) | (torch.arange(n) < width - 1)
    for left in range(0, n - 1):
        for right in range(1, n - 1):
            yield "no", f"{-left}:{right}", (offset >= -left) & (offset <= right)


def find_flag(probe: Probe) -> Convention | None:
    """What a flag of the call that asks for causality does: another pattern than without it; None where it does not."""
    flag = probe.form.extra.get("flag")
    if flag is None:
        return None
    inputs = probe.inputs(probe.sources()[0], S=T_)
    plain, asked = probe.movement(inputs), probe.movement(inputs, **{flag: True})
    if plain is None or asked is None or torch.equal(plain > 0, asked > 0):
        return None
    corner = _corner(probe, "top-left", **{flag: True})
    probe.form.flag, probe.form.flag_corner = flag, corner
    return Convention(corner, "observed", f"dependence of queries on keys under {flag}=True")


def _corner(probe: Probe, pattern: str, /, **given: Any) -> str:
    """top-left or bottom-right, where lengths may differ."""
    across = [s for s in probe.sources() if s in ("memory", "separate")]
    if pattern != "top-left" or not across:
        return pattern
    moved = probe.movement(probe.inputs(across[0], N=2, T=3, S=6), **given)
    if moved is None:
        return pattern
    offset = torch.arange(6) - torch.arange(3)[:, None]
    return "bottom-right" if torch.equal((moved > 0).any(0), offset <= 3) else pattern
