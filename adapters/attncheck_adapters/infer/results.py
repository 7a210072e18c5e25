"""What a result is made of: the output and the weights, told apart by their shapes.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from attncheck.inputs import Inputs
from attncheck_adapters.infer.code import TURNED


def axes_turned(layout: str) -> tuple[int, int]:
    i, j = map(int, TURNED[layout].split(","))
    return i, j


def find_parts(result: Any, inputs: Inputs, layout: str) -> tuple[list[str], list[str]]:
    """Which parts of a result are outputs, and which weights, by their shapes."""
    parts, lead, S = parts_in(result), tuple(inputs.query.shape[:-1]), inputs.key.shape[-2]
    shaped = {p: by_head(p, x, lead, S) for p, x in parts}
    weights = {p: way for p, x in parts if (way := shaped[p]) is not None and _are_shares(x)}
    if layout in TURNED:
        lead = tuple(inputs.query.transpose(*axes_turned(layout)).shape[:-1])
    outputs = [p for p, x in parts if x.ndim == len(lead) + 1 and tuple(x.shape[:-1]) == lead and p not in weights]
    return outputs, [way.format(output=outputs[0] if outputs else "result") for way in weights.values()]


def parts_in(result: Any, place: str = "result", depth: int = 1) -> list[tuple[str, Tensor]]:
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
        elif depth and (isinstance(value, dict | tuple | list) or dataclasses.is_dataclass(value)):
            found += parts_in(value, path, depth - 1)
    return found


def by_head(path: str, x: Tensor, lead: tuple[int, ...], S: int) -> str | None:
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
