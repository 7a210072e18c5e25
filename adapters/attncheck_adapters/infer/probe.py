"""What a target does, found by calling it: output, layout, masks and their meaning, causality.

Every probe compares how far outputs move when one token is edited. N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attncheck.inputs import Inputs, drawn
from attncheck.spec import BadTarget
from attncheck.subject import Convention, TimedOut
from attncheck_adapters.infer import extras
from attncheck_adapters.infer.code import TURNED, handed_over
from attncheck_adapters.infer.form import Form

N_, T_, S_ = 3, 5, 7
Call = Callable[..., tuple[Tensor, Tensor | None]]


class Probe:
    """Calls of one target under a form that is still being found."""

    def __init__(
        self, target: Any, form: Form, widths: tuple[int, int, int], heads: tuple[int, int] | None, dtype: torch.dtype,
        n_heads: int = 1,
    ):  # fmt: skip
        self.target, self.form, self.widths, self.heads, self.dtype = target, form, widths, heads, dtype
        self.seed, self.shift, self.grad = 0, 0, False
        self.n_heads = n_heads
        self.tried: dict[str, None] = {}  # ways of a plain call that were refused, in words

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
        names, form = self.form.names, self.form
        given = {
            **extras.evaluated(form, inputs.query, inputs.key, self.shift),
            **self.unmasked(inputs, given),
            **given,
        }
        for role, x in zip(("query", "key", "value"), inputs.tensors(), strict=True):
            if role in names:
                given[names[role]] = x
        if "memory" in names and (inputs.sources != "self" or "memory" not in form.extra.get("optional", ())):
            given[names["memory"]] = inputs.key
        tokens = {id(x): x for x in inputs.tensors()}
        if form.layout in TURNED:
            tokens = {key: x.transpose(*axes_turned(form.layout)) for key, x in tokens.items()}
        torch.default_generator.manual_seed(self.seed)
        try:
            with torch.set_grad_enabled(self.grad):
                if form.extra.get("reset") is not None:
                    getattr(self.target, form.extra["reset"])()
                if form.extra.get("unbatched"):
                    each = [{k: tokens[id(v)][n] if id(v) in tokens else v for k, v in given.items()}
                            for n in range(len(inputs.query))]  # fmt: skip
                    return _stacked([self.target(**one) for one in each])
                return self.target(**{k: tokens.get(id(v), v) for k, v in given.items()})
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            return error

    def unmasked(self, inputs: Inputs, given: Mapping[str, Any]) -> dict[str, Any]:
        """What stands for no mask where the argument has no default: None, or a mask that blocks nothing."""
        names = [self.form.names[role] for role in self.form.extra.get("required", ())]
        blank: dict[str, Any] = {name: None for name in names if name not in given}
        if self.form.plain is not None and self.form.plain[0] in blank:
            argument, axes, encoding = self.form.plain
            nothing = torch.ones(1, 1, 1, inputs.key.shape[-2], dtype=torch.bool)
            blank[argument] = handed_over(nothing, axes, encoding, self.n_heads, inputs)
        return blank

    def output(self, inputs: Inputs, **given: Any) -> Tensor | None:
        """The output, batch first; None where the call was refused."""
        result = self.raw(inputs, **given)
        if isinstance(result, BaseException):
            return None
        try:
            output: Tensor = eval(self.form.output, {"result": result, "weights": self.asked(given)})
        except (TypeError, KeyError, IndexError, AttributeError):
            return None
        if not isinstance(output, Tensor):
            return None
        return output.transpose(*axes_turned(self.form.layout)) if self.form.layout in TURNED else output

    def asked(self, given: Mapping[str, Any]) -> bool:
        """Whether the call asks for weights; a flag that is not given has its default."""
        return bool(given.get(self.form.names.get("weights", ""), self.form.extra.get("asks", False)))

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


def axes_turned(layout: str) -> tuple[int, int]:
    i, j = map(int, TURNED[layout].split(","))
    return i, j


def _stacked(results: list[Any]) -> Any:
    """The results of single samples as that of a batch."""
    first = results[0]
    if isinstance(first, Tensor):
        return torch.stack(results)
    if isinstance(first, dict):
        return {k: _stacked([r[k] for r in results]) for k in first}
    if isinstance(first, tuple | list):
        return tuple(_stacked(list(parts)) for parts in zip(*results, strict=True))
    return first


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
        text = " ".join(str(result).split())
        raise BadTarget(f"the plain call of {label} raised {type(result).__name__}: {text[:300]}")
    outputs, weights = find_parts(result, inputs, probe.form.layout)
    if not outputs:
        shapes = [tuple(x.shape) for _, x in _parts(result)] or type(result).__name__
        raise BadTarget(f"the plain call of {label} gave {shapes}, expected a tensor {(*inputs.query.shape[:-1], 'D')}")
    probe.form.output = outputs[0]
    probe.form.weights = weights[0] if weights else None


def find_parts(result: Any, inputs: Inputs, layout: str) -> tuple[list[str], list[str]]:
    """Which parts of a result are outputs, and which weights, by their shapes."""
    parts, lead, S = _parts(result), tuple(inputs.query.shape[:-1]), inputs.key.shape[-2]
    shaped = {p: _by_head(p, x, lead, S) for p, x in parts}
    weights = {p: way for p, x in parts if (way := shaped[p]) is not None and _are_shares(x)}
    if layout in TURNED:
        lead = tuple(inputs.query.transpose(*axes_turned(layout)).shape[:-1])
    outputs = [p for p, x in parts if x.ndim == len(lead) + 1 and tuple(x.shape[:-1]) == lead and p not in weights]
    return outputs, [way.format(output=outputs[0] if outputs else "result") for way in weights.values()]


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
        found = [p for p, x in _parts(asked) if x.ndim == 4 and _by_head(p, x, lead, S) == p]
    if not outputs[0] or not outputs[1] or not found:
        probe.form.names.pop("weights")
        return
    name = "result" if outputs[0][0] == outputs[1][0] else None
    probe.form.output = outputs[1][0] if name else f"({outputs[1][0]} if weights else {outputs[0][0]})"
    probe.form.weights = f"({found[0]} if weights else None)"


def _parts(result: Any, place: str = "result", depth: int = 1) -> list[tuple[str, Tensor]]:
    """The tensors of a result and of what is in it, each with the expression that takes it out."""
    if isinstance(result, Tensor):
        return [(place, result)]
    if isinstance(result, dict):
        items = [(f"{place}[{k!r}]", v) for k, v in result.items()]
    elif isinstance(result, tuple | list):
        items = [(f"{place}[{i}]", v) for i, v in enumerate(result)]
    else:
        made = dataclasses.is_dataclass(result)
        named = [f.name for f in dataclasses.fields(result)] if made else getattr(result, "__dict__", {})
        items = [(f"{place}.{k}", getattr(result, k)) for k in named]
    found = []
    for path, value in items:
        if isinstance(value, Tensor):
            found.append((path, value))
        elif depth and isinstance(value, dict | tuple | list):
            found += _parts(value, path, depth - 1)
    return found


def _by_head(path: str, x: Tensor, lead: tuple[int, ...], S: int) -> str | None:
    """The expression that gives (N,h,T,S) or (N,T,S), where the tensor may be weights by its shape."""
    if x.ndim == 4 and x.shape[:3] == (lead[-1], S, lead[0]) and x.is_floating_point():
        return f"{path}.permute(2, 3, 0, 1)"
    if x.ndim not in (3, 4) or x.shape[-2:] != (lead[-1], S) or not x.is_floating_point():
        return None
    N = lead[0]
    if x.shape[0] == N:
        return path
    if x.ndim == 4 and x.shape[1] == N:
        return f"{path}.transpose(0, 1)"
    return f"{path}.unflatten(0, (len({{output}}), -1))" if x.ndim == 3 and x.shape[0] % N == 0 else None


def _are_shares(x: Tensor) -> bool:
    """Between 0 and 1; what they sum to is for a check to say."""
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
