"""Reading the parameters of an unknown module as projections: every arrangement that the shapes allow.

Which one is right is decided elsewhere, by parity of outputs. Canonical: q.weight (h*d, Dq), k.weight (g*d, Dk),
v.weight (g*e, Dv), o.weight (Do, h*e), heads in blocks, and the biases with them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attncheck_adapters.infer.sizes import Sizes

ROLES = {
    "q": re.compile(
        r"(^|[._])(w?_?q|.*quer(y|ies).*|.*to_?q|wq|.*q_?(proj|lin|linear|net|map|w|weight|matrix|layer|transform))\d?$"
    ),
    "k": re.compile(
        r"(^|[._])(w?_?k|.*keys?.*|.*to_?k|wk|.*k_?(proj|lin|linear|net|map|w|weight|matrix|layer|transform))\d?$"
    ),
    "v": re.compile(
        r"(^|[._])(w?_?v|.*val(ue)?s?.*|.*to_?v|wv|.*v_?(proj|lin|linear|net|map|w|weight|matrix|layer|transform))\d?$"
    ),
    "o": re.compile(
        r"(^|[._])(w?_?o|.*out.*|wo|.*c_proj|.*dense|.*fc\w*|.*merge\w*|.*combine\w*|.*unify\w*|proj|.*o_?(proj|lin|linear|net|w))\d?$"
    ),
}


WEIGHT = re.compile(r"weights?|kernel|^w_?|_w$", re.IGNORECASE)
BIAS = re.compile(r"bias(es)?|^b_?|_b$", re.IGNORECASE)


@dataclass(frozen=True)
class Matrix:
    """One linear map: its weight as (out, in) and its bias."""

    name: str
    weight: Tensor
    bias: Tensor | None = None
    bare: bool = False  # a parameter of no nn.Linear

    @property
    def either_way(self) -> bool:
        """Whether it may be (in, out) as well as (out, in)."""
        return self.bare and self.weight.shape[0] == self.weight.shape[1]


def readings(module: nn.Module, sizes: Sizes) -> list[dict[str, Tensor]]:
    """Canonical projections, the likeliest reading first; empty where the parameters are of another family."""
    found: list[dict[str, Tensor]] = []
    divisors = [g for g in range(sizes.heads, 0, -1) if sizes.heads % g == 0 and g != sizes.kv_heads]
    for kv_heads in (sizes.kv_heads, *divisors):
        grouped = replace(sizes, kv_heads=kv_heads)
        for matrices in _collections(module, grouped):
            if 1 <= len(matrices) <= 5:
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
    if "o.weight" in reading:
        yield {**inner, "o.weight": turned(reading["o.weight"], 1)}


def _collections(module: nn.Module, sizes: Sizes) -> Iterator[list[Matrix]]:
    """The linear maps of a module; and the same with numbered twins (one module a head) stacked into one."""
    matrices = list(_matrices(module, sizes))
    yield matrices
    if any(m.either_way for m in matrices):
        yield [replace(m, weight=m.weight.T) if m.either_way else m for m in matrices]
        inputs = [m.either_way and not ROLES["o"].search(m.name) for m in matrices]
        yield [replace(m, weight=m.weight.T) if turn else m for m, turn in zip(matrices, inputs, strict=True)]
    stacked = _stacked(matrices, sizes.heads)
    if len(stacked) != len(matrices):
        yield stacked


def _matrices(module: nn.Module, sizes: Sizes) -> Iterator[Matrix]:
    named = {name: parameter.detach() for name, parameter in module.named_parameters()}
    linear = {n for n, part in module.named_modules() if isinstance(part, nn.Linear)}
    biases = _biases(named)
    for name, weight in named.items():
        owner = name.rpartition(".")[0]
        plain = owner in linear
        row = weight.ndim == 2 and min(weight.shape) == 1 and not plain
        if row or name in biases.values() or weight.ndim not in (2, 3):
            continue
        if weight.ndim == 3:
            weight = _flattened(weight, name, sizes)
        elif not plain and _is_in_out(weight, sizes):
            weight = weight.T
        bias = named[biases[name]].flatten() if name in biases else None
        fits = bias is not None and len(bias) == len(weight)
        yield Matrix(owner if plain else name, weight, bias if fits else None, bare=not plain)


def _biases(named: dict[str, Tensor]) -> dict[str, str]:
    """Weight -> bias: parameters of one owner whose names differ in `weight` and `bias`, or w and b, alone."""

    def stem(name: str, word: re.Pattern[str]) -> str:
        owner, _, last = name.rpartition(".")
        return f"{owner}.{word.sub('', last).strip('_').lower()}"

    known = {stem(n, BIAS): n for n in named if BIAS.search(n.rpartition(".")[2])}
    pairs = {n: known.get(stem(n, WEIGHT), n) for n, weight in named.items() if weight.ndim > 1}
    return {n: other for n, other in pairs.items() if named[other].numel() < named[n].numel()}


def _is_in_out(weight: Tensor, sizes: Sizes) -> bool:
    """A bare parameter is multiplied from the right in most code, so that it is (in, out)."""
    return weight.shape[0] in sizes.widths or weight.shape[0] == weight.shape[1]


def _flattened(weight: Tensor, name: str, sizes: Sizes) -> Tensor:
    """(h,D,d), (D,h,d) and (h,d,D) as (out, in); the last is that of an output, unless its name is another's."""
    a, b, c = weight.shape
    if a == sizes.heads and b in sizes.widths and not ROLES["o"].search(name):
        return weight.permute(0, 2, 1).reshape(a * c, b)
    if a == sizes.heads and c in sizes.widths and any(ROLES[role].search(name) for role in "qkv"):
        return weight.reshape(a * b, c)
    if a in sizes.widths:
        return weight.permute(1, 2, 0).reshape(b * c, a)
    return weight.permute(2, 0, 1).reshape(c, a * b)


def _stacked(matrices: list[Matrix], heads: int) -> list[Matrix]:
    """Twins that differ in one number of their name, as many as there are heads, as one map with heads in blocks."""
    groups: dict[str, list[Matrix]] = {}
    for matrix in matrices:
        groups.setdefault(re.sub(r"\d+", "*", matrix.name, count=1), []).append(matrix)
    result = []
    for pattern, twins in groups.items():
        if "*" in pattern and len(twins) == heads and len({t.weight.shape for t in twins}) == 1:
            biases = [t.bias for t in twins if t.bias is not None]
            bias = torch.cat(biases) if len(biases) == heads else None
            result.append(
                Matrix(pattern.replace("*.", "").replace(".*", ""), torch.cat([t.weight for t in twins]), bias)
            )
        else:
            result += twins
    return result


def _arranged(matrices: list[Matrix], sizes: Sizes) -> Iterator[dict[str, Tensor]]:
    """Separate maps by name, then in every order; a fused map of queries, keys and values; one of keys and values."""
    if len(matrices) in (3, 4):
        for order in _orders(matrices):
            yield _named(dict(zip("qkvo", order, strict=False)))
    if len(matrices) in (1, 2):
        fused = max(matrices, key=lambda m: m.weight.shape[0])
        rest = [m for m in matrices if m is not fused]
        for parts in _cut(fused, sizes):
            yield _named({**parts, **({"o": rest[0]} if rest else {})})
    if len(matrices) in (2, 3):
        for fused, *rest in itertools.permutations(matrices):
            for parts in _cut_pair(fused, sizes):
                yield _named({"q": rest[0], **parts, **({"o": rest[1]} if len(rest) > 1 else {})})


def _orders(matrices: list[Matrix]) -> list[tuple[Matrix, ...]]:
    """All orders as q, k, v, o, those first that the names speak for."""

    def agreement(order: tuple[Matrix, ...]) -> int:
        return -sum(bool(ROLES[role].search(m.name)) for role, m in zip("qkvo", order, strict=False))

    return sorted(itertools.permutations(matrices), key=agreement)


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
    return [Matrix(fused.name, w, b) for w, b in zip(weights, biases, strict=True)]


def _sliced(
    fused: Matrix, view: tuple[int, int, int], axis: int, lengths: list[int], heads_last: bool = False
) -> list[Matrix]:
    """Rows seen as three axes and cut along one of them; what is left of each part is put in blocks of heads."""

    def parts(x: Tensor) -> list[Tensor]:
        cut = torch.split(x.reshape(*view, -1), lengths, axis)
        return [(c.transpose(0, 2) if heads_last else c).reshape(-1, c.shape[-1]) for c in cut]

    weights = parts(fused.weight)
    biases = [None] * len(lengths) if fused.bias is None else [b[:, 0] for b in parts(fused.bias[:, None])]
    return [Matrix(fused.name, w, b) for w, b in zip(weights, biases, strict=True)]


def _fits(reading: dict[str, Tensor], sizes: Sizes) -> bool:
    """Whether shapes go together: inputs of the given widths, equal head widths of q and k, o takes all heads."""
    q, k, v = (reading[f"{r}.weight"] for r in "qkv")
    o = reading.get("o.weight")
    h, g = sizes.heads, sizes.kv_heads
    inputs = (q.shape[1], k.shape[1], v.shape[1]) == sizes.widths
    heads = q.shape[0] % h == k.shape[0] % g == v.shape[0] % g == 0 and q.shape[0] // h == k.shape[0] // g
    return inputs and heads and (o is None or o.shape[1] == h * (v.shape[0] // g))
