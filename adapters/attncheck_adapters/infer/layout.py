"""Reading the parameters of an unknown module as projections: every arrangement that the shapes allow.

Which one is right is decided elsewhere, by parity of outputs. Canonical: q.weight (h*d, Dq), k.weight (g*d, Dk),
v.weight (g*e, Dv), o.weight (Do, h*e), heads in blocks, and the biases with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from attncheck_adapters.infer.matrices import ROLES, Matrix, is_output, joined, matrices_of
from attncheck_adapters.infer.sizes import Sizes


def readings(module: nn.Module, sizes: Sizes, taken: Collection[str] = ()) -> list[dict[str, Tensor]]:
    """Canonical projections, the likeliest reading first; empty where the parameters are of another family.

    taken: names of parameters that are no projections.
    """
    found: list[dict[str, Tensor]] = []
    divisors = [g for g in range(sizes.heads, 0, -1) if sizes.heads % g == 0 and g != sizes.kv_heads]
    for kv_heads in (sizes.kv_heads, *divisors):
        grouped = replace(sizes, kv_heads=kv_heads)
        for matrices in _collections(module, grouped, taken):
            found += [r for r in _arranged(matrices, grouped) if _fits(r, grouped)]
    return found + [other for r in found for other in _heads_innermost(r, sizes.heads)]


def _heads_innermost(reading: dict[str, Tensor], heads: int) -> Iterator[dict[str, Tensor]]:
    """The same for features that are numbered (d, h) instead of (h, d): in q, k and v, and perhaps in o too.

    As sound as blocks, since the maps are learned; only where all heads have keys of their own.
    """
    if heads == 1 or len({reading[f"{r}.weight"].shape[0] for r in "qk"}) > 1 or reading["v.weight"].shape[0] % heads:
        return

    def turned(x: Tensor, axis: int) -> Tensor:
        shape = (*x.shape[:axis], -1, heads, *x.shape[axis + 1 :])
        return x.reshape(shape).transpose(axis, axis + 1).reshape(x.shape)

    inner = {name: x if name.startswith("o.") else turned(x, 0) for name, x in reading.items()}
    yield inner
    # Without an output projection, one that puts the features in order.
    v = reading["v.weight"]
    yield {**inner, "o.weight": turned(reading.get("o.weight", torch.eye(len(v), dtype=v.dtype)), 1)}


def _collections(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> Iterator[list[Matrix]]:
    """The linear maps of a module, and the same with numbered twins (one module a head) joined, in each of their ways.

    Inputs are all read in one way, and the output in one of its own.
    """
    matrices = list(matrices_of(module, sizes, taken))
    whole = joined(matrices, sizes)
    for collection in (matrices, whole) if len(whole) != len(matrices) else (matrices,):
        if 1 <= len(collection) <= 5:
            output = next((m for m in collection if is_output(m.name)), collection[-1])
            ways = [max((len(m.ways) for m in collection if (m is output) == last), default=1) for last in (0, 1)]
            for i, j in itertools.product(*map(range, ways)):
                yield [m.read(j if m is output else i) for m in collection]


def _arranged(matrices: list[Matrix], sizes: Sizes) -> Iterator[dict[str, Tensor]]:
    """Separate maps by name, then in every order; a fused map of queries, keys and values; one of keys and values.

    At last, one map whose results are keys and values at once.
    """
    if len(matrices) in (3, 4):
        for order in _orders(matrices, "qkvo"):
            yield _named(order)
    if len(matrices) in (1, 2):
        fused = max(matrices, key=lambda m: m.weight.shape[0])
        rest = [m for m in matrices if m is not fused]
        for parts in _cut(fused, sizes):
            yield _named({**parts, **({"o": rest[0]} if rest else {})})
    if len(matrices) in (2, 3):
        for fused, *rest in itertools.permutations(matrices):
            for parts in _cut_pair(fused, sizes):
                yield _named({"q": rest[0], **parts, **({"o": rest[1]} if len(rest) > 1 else {})})
        for order in _orders(matrices, "qko"):
            yield _named({**order, "v": order["k"]})


def _orders(matrices: list[Matrix], roles: str) -> list[dict[str, Matrix]]:
    """All orders of the matrices as these roles, those first that the names speak for."""

    def agreement(order: dict[str, Matrix]) -> int:
        return -sum(bool(ROLES[role].search(m.name)) for role, m in order.items())

    orders = (dict(zip(roles, order, strict=False)) for order in itertools.permutations(matrices))
    return sorted(orders, key=agreement)


def _named(parts: dict[str, Matrix]) -> dict[str, Tensor]:
    named = {f"{role}.weight": m.weight for role, m in parts.items()}
    return named | {f"{role}.bias": m.bias for role, m in parts.items() if m.bias is not None}


def _cut(fused: Matrix, sizes: Sizes) -> Iterator[dict[str, Matrix]]:
    """[q|k|v] in blocks in any order, then per group (g, h/g + 2, d), then per channel (h, d, 3) and (d, 3, h)."""
    h, g = sizes.heads, sizes.kv_heads
    rows = fused.weight.shape[0]
    if rows % (h + 2 * g) == 0:
        d = rows // (h + 2 * g)
        for order in itertools.permutations("qkv"):
            lengths = [h * d if role == "q" else g * d for role in order]
            yield {
                r: m
                for r, m in sorted(zip(order, _split(fused, lengths), strict=True), key=lambda p: "qkv".index(p[0]))
            }
        yield dict(zip("qkv", _sliced(fused, (g, h // g + 2, d), 1, [h // g, 1, 1]), strict=True))
        if h == g:
            yield dict(zip("qkv", _sliced(fused, (h, d, 3), 2, [1, 1, 1]), strict=True))
            yield dict(zip("qkv", _sliced(fused, (d, 3, h), 1, [1, 1, 1], heads_last=True), strict=True))


def _cut_pair(fused: Matrix, sizes: Sizes) -> Iterator[dict[str, Matrix]]:
    """[k|v] or [v|k] in blocks, then per head (g, 2, d)."""
    rows, g = fused.weight.shape[0], sizes.kv_heads
    if rows % (2 * g) == 0:
        first, second = _split(fused, [rows // 2, rows // 2])
        yield {"k": first, "v": second}
        yield {"k": second, "v": first}
        yield dict(zip("kv", _sliced(fused, (g, 2, rows // (2 * g)), 1, [1, 1]), strict=True))


def _split(fused: Matrix, lengths: list[int]) -> list[Matrix]:
    weights = torch.split(fused.weight, lengths)
    biases = [None] * len(lengths) if fused.bias is None else list(torch.split(fused.bias, lengths))
    return [Matrix(fused.name, (w,), b) for w, b in zip(weights, biases, strict=True)]


def _sliced(
    fused: Matrix, view: tuple[int, int, int], axis: int, lengths: list[int], heads_last: bool = False
) -> list[Matrix]:
    """Rows seen as three axes and cut along one of them; what is left of each part is put in blocks of heads."""

    def parts(x: Tensor) -> list[Tensor]:
        cut = torch.split(x.reshape(*view, -1), lengths, axis)
        return [(c.transpose(0, 2) if heads_last else c).reshape(-1, c.shape[-1]) for c in cut]

    weights = parts(fused.weight)
    biases = [None] * len(lengths) if fused.bias is None else [b[:, 0] for b in parts(fused.bias[:, None])]
    return [Matrix(fused.name, (w,), b) for w, b in zip(weights, biases, strict=True)]


def _fits(reading: dict[str, Tensor], sizes: Sizes) -> bool:
    """Whether shapes go together: inputs of the given widths, equal head widths of q and k, o takes all heads."""
    q, k, v = (reading[f"{r}.weight"] for r in "qkv")
    o = reading.get("o.weight")
    h, g = sizes.heads, sizes.kv_heads
    inputs = (q.shape[1], k.shape[1], v.shape[1]) == sizes.widths
    heads = q.shape[0] % h == k.shape[0] % g == v.shape[0] % g == 0 and q.shape[0] // h == k.shape[0] // g
    return inputs and heads and (o is None or o.shape[1] == h * (v.shape[0] // g))
