"""What a target does, found by calling it: output, layout, masks and their meaning, causality.

Every probe compares how far outputs move when one token is edited. N batch, T queries, S keys, h heads
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attncheck.inputs import Inputs, drawn
from attncheck.spec import BadTarget
from attncheck.subject import Convention, TimedOut
from attncheck_adapters.infer.form import Form

N_, T_, S_ = 3, 5, 7
Call = Callable[..., tuple[Tensor, Tensor | None]]


class Probe:
    """Calls of one target under a form that is still being found."""

    def __init__(
        self, target: Any, form: Form, widths: tuple[int, int, int], heads: tuple[int, int] | None, dtype: torch.dtype
    ):
        self.target, self.form, self.widths, self.heads, self.dtype = target, form, widths, heads, dtype
        self.seed = 0

    def sources(self) -> tuple[str, ...]:
        """Ways of calling it: what its arguments allow and its widths fit."""
        found = self.form.sources()
        same = self.widths[0] == self.widths[1]
        return found if same else tuple(s for s in found if s not in ("self", "clones"))

    def inputs(self, sources: str, N: int = N_, T: int = T_, S: int = S_, seed: int = 3) -> Inputs:
        S = T if sources in ("self", "clones") else S
        h, g = ((self.heads[0],), (self.heads[1],)) if self.heads else ((), ())
        shapes = [(N, *x, n, w) for x, n, w in zip((h, g, g), (T, S, S), self.widths, strict=True)]
        return drawn(sources, shapes, seed, self.dtype, torch.device("cpu"))

    def raw(self, inputs: Inputs, **given: Any) -> Any:
        """The target's own result, in evaluation without gradients; an exception is a result too."""
        names = self.form.names
        for role, x in zip(("query", "key", "value"), inputs.tensors(), strict=True):
            if role in names:
                given[names[role]] = x
        if "memory" in names and (inputs.sources != "self" or "memory" not in self.form.extra.get("optional", ())):
            given[names["memory"]] = inputs.key
        if self.form.layout == "seq-first":
            turned = {id(x): x.transpose(0, 1) for x in inputs.tensors()}
            given = {k: turned.get(id(v), v) for k, v in given.items()}
        torch.default_generator.manual_seed(self.seed)
        try:
            with torch.no_grad():
                if self.form.extra.get("reset") is not None:
                    getattr(self.target, self.form.extra["reset"])()
                return self.target(**given)
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            return error

    def output(self, inputs: Inputs, **given: Any) -> Tensor | None:
        """The output, batch first; None where the call was refused."""
        result = self.raw(inputs, **given)
        if isinstance(result, BaseException):
            return None
        try:
            output: Tensor = eval(self.form.output, {"result": result, "weights": self.asked(given)})
        except (TypeError, KeyError, IndexError, AttributeError):
            return None
        return output.transpose(0, 1) if self.form.layout == "seq-first" else output

    def asked(self, given: Mapping[str, Any]) -> bool:
        """Whether the call asks for weights."""
        return bool(given.get(self.form.names.get("weights", "")))

    def movement(self, inputs: Inputs, **given: Any) -> Tensor | None:
        """How far each output moves when each key is edited, (N,T,S); None where the call is refused."""
        before = self.output(inputs, **given)
        if before is None or before.shape[:-1] != inputs.query.shape[:-1]:
            return None
        columns = []
        for s in range(inputs.key.shape[-2]):
            after = self.output(inputs.edited([s], seed=s), **given)
            if after is None or after.shape != before.shape:
                return None
            moved = (after - before).abs().nan_to_num(0.0).amax(-1)
            columns.append(moved if moved.ndim == 2 else moved.amax(1))
        return torch.stack(columns, -1)


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
    T, S = inputs.query.shape[-2], inputs.key.shape[-2]
    result = probe.raw(inputs)
    if isinstance(result, BaseException) and S != T:
        inputs = probe.inputs("memory" if "memory" in probe.sources() else sources, S=T_)
        result, S = probe.raw(inputs), T_
    if isinstance(result, BaseException):
        text = " ".join(str(result).split())
        raise BadTarget(f"the plain call of {label} raised {type(result).__name__}: {text[:300]}")
    parts = _parts(result)
    lead = tuple(inputs.query.shape[:-1])
    weights = [p for p, x in parts if _are_weights(x, lead, S)]
    lead = lead[::-1] if probe.form.layout == "seq-first" else lead
    outputs = [p for p, x in parts if x.ndim == len(lead) + 1 and tuple(x.shape[:-1]) == lead and p not in weights]
    if not outputs:
        shapes = [tuple(x.shape) for _, x in parts] or type(result).__name__
        raise BadTarget(f"the plain call of {label} gave {shapes}, expected a tensor {(*lead, 'D')}")
    probe.form.output = outputs[0]
    probe.form.weights = weights[0] if weights else None


def drop_refused_memory(probe: Probe) -> None:
    """A memory argument that is optional and raises when it is given belongs to another use of the class."""
    optional = "memory" in probe.form.names and "memory" in probe.form.extra.get("optional", ())
    if optional and all(isinstance(probe.raw(probe.inputs("memory", S=S)), BaseException) for S in (S_, T_)):
        probe.form.names.pop("memory")


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
    lead, S = tuple(inputs.query.shape[:-1]), inputs.key.shape[-2]
    outputs = []
    for result in (plain, asked):
        parts = _parts(result)
        outputs.append([p for p, x in parts if tuple(x.shape[:-1]) == lead and not _are_weights(x, lead, S)])
    found = [p for p, x in _parts(asked) if _are_weights(x, lead, S)]
    if not outputs[0] or not outputs[1] or not found:
        probe.form.names.pop("weights")
        return
    name = "result" if outputs[0][0] == outputs[1][0] else None
    probe.form.output = outputs[1][0] if name else f"({outputs[1][0]} if weights else {outputs[0][0]})"
    probe.form.weights = f"({found[0]} if weights else None)"


def _parts(result: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a result, each with the expression that takes it out."""
    if isinstance(result, Tensor):
        return [("result", result)]
    if isinstance(result, dict):
        items = [(f"result[{k!r}]", v) for k, v in result.items()]
    elif isinstance(result, tuple | list):
        items = [(f"result[{i}]", v) for i, v in enumerate(result)]
    else:
        items = [(f"result.{k}", v) for k, v in getattr(result, "__dict__", {}).items()]
    return [(path, value) for path, value in items if isinstance(value, Tensor)]


def _are_weights(x: Tensor, lead: tuple[int, ...], S: int) -> bool:
    """(N,h,T,S) or (N,T,S) in evaluation, between 0 and 1; what they sum to is for a check to say."""
    if x.ndim not in (3, 4) or x.shape[0] != lead[0] or x.shape[-2:] != (lead[-1], S) or not x.is_floating_point():
        return False
    return bool(((x >= 0) & (x <= 1.001)).all())


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
            told = Convention(_corner(probe, causal), "observed", evidence)
            return told, None if window is None else Convention(window, "observed", evidence)
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


def _corner(probe: Probe, causal: str) -> str:
    """top-left or bottom-right, where lengths may differ."""
    across = [s for s in probe.sources() if s in ("memory", "separate")]
    if causal != "top-left" or not across:
        return causal
    moved = probe.movement(probe.inputs(across[0], N=2, T=3, S=6))
    if moved is None:
        return causal
    offset = torch.arange(6) - torch.arange(3)[:, None]
    return "bottom-right" if torch.equal((moved > 0).any(0), offset <= 3) else causal
