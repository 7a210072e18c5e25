"""Reading the parameters of an unknown module as projections: every arrangement that the shapes allow.

Which one is right is decided elsewhere, by parity of outputs. Canonical: q.weight (h*d, Dq), k.weight (g*d, Dk),
v.weight (g*e, Dv), o.weight (Do, h*e), heads in blocks, and the biases with them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
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


# What tells a weight from its bias; the first that is there is left out of the name.
WEIGHT = (re.compile(r"[._]?(weights?|kernel)[._]?", re.IGNORECASE), re.compile(r"^w_?|_w$", re.IGNORECASE))
BIAS = (re.compile(r"[._]?bias(es)?[._]?", re.IGNORECASE), re.compile(r"^b_?|_b$", re.IGNORECASE))
# Where heads, features of a head and width stand in a parameter of three axes: (h,D,d), (D,h,d), (h,d,D).
AXES = ((0, 2, 1), (1, 2, 0), (0, 1, 2))


def is_output(name: str) -> bool:
    """Whether a name speaks for the output projection, and for none of the others."""
    return bool(ROLES["o"].search(name)) and not any(ROLES[r].search(name) for r in "qkv")


@dataclass(frozen=True)
class Matrix:
    """One linear map: what may be its weight as (out, in), the likeliest first, and its bias."""

    name: str
    ways: tuple[Tensor, ...]
    bias: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        return self.ways[0]

    def read(self, i: int) -> Matrix:
        """In its i-th way alone, or the last where there are fewer."""
        weight = self.ways[min(i, len(self.ways) - 1)]
        fits = self.bias is not None and len(self.bias) == len(weight)
        return Matrix(self.name, (weight,), self.bias if fits else None)


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


FUSED = re.compile(r"qkv|query_key_value|in_proj|c_attn|attn_proj|(^|[._])attn$", re.I)
PAIR = re.compile(r"(^|[._])((w|to|linear|lin|fc)_?)?(kv|key_value)", re.I)


def named_beyond_doubt(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> bool:
    """Whether the names alone tell which map is which: one of each role, or a fused one, and nothing else."""
    matrices = _joined(list(_matrices(module, sizes, taken)), sizes)
    roles = {m.name: [r for r in "qkvo" if ROLES[r].search(m.name)] for m in matrices}
    for m in matrices:
        fused, pair = FUSED.search(m.name), PAIR.search(m.name)
        inputs = [r for r in roles[m.name] if r != "o"]  # q_proj ends like the proj of outputs
        roles[m.name] = ["qkv"] if fused else ["kv"] if pair else inputs or roles[m.name]
    said = sorted(r[0] for r in roles.values() if len(r) == 1)
    alone = len(said) == len(matrices) and len({r for rs in roles.values() for r in rs}) == len(matrices)
    return alone and said in (
        ["k", "o", "q", "v"],
        ["k", "q", "v"],
        ["o", "qkv"],
        ["qkv"],
        ["kv", "o", "q"],
        ["kv", "q"],
    )


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
    matrices = list(_matrices(module, sizes, taken))
    joined = _joined(matrices, sizes)
    for collection in (matrices, joined) if len(joined) != len(matrices) else (matrices,):
        if 1 <= len(collection) <= 5:
            output = next((m for m in collection if is_output(m.name)), collection[-1])
            ways = [max((len(m.ways) for m in collection if (m is output) == last), default=1) for last in (0, 1)]
            for i, j in itertools.product(*map(range, ways)):
                yield [m.read(j if m is output else i) for m in collection]


def _matrices(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> Iterator[Matrix]:
    named = {name: parameter.detach() for name, parameter in module.named_parameters() if name not in taken}
    linear = {n for n, part in module.named_modules() if isinstance(part, nn.Linear)}
    biases = _biases(named)
    for name, weight in named.items():
        owner = name.rpartition(".")[0]
        plain = owner in linear
        row = weight.ndim == 2 and min(weight.shape) == 1 and not plain
        if row or name in biases.values() or weight.ndim not in (2, 3):
            continue
        bias = named[biases[name]].flatten() if name in biases else _bias_apart(named, name)
        name = owner if plain else WEIGHT[0].sub("", name)
        ways = (weight,) if plain else _ways(weight, name, sizes)
        shared = plain and weight.shape[0] == weight.shape[1] == sizes.widths[0] // sizes.heads != sizes.widths[0]
        if shared:
            # One small map for the slice of every head.
            ways = (torch.kron(torch.eye(sizes.heads, dtype=weight.dtype), weight),)
            bias = None if bias is None else bias.repeat(sizes.heads)
        if ways:
            yield Matrix(name, ways, bias)


def _bias_apart(named: dict[str, Tensor], name: str) -> Tensor | None:
    """Of a fused map whose biases are parameters of their own, as q_bias and v_bias beside qkv; 0 for the missing."""
    owner, weight = name.removesuffix(".weight").rpartition(".")[0], named[name]
    prefix = f"{owner}." if owner else ""
    parts = {r: named.get(f"{prefix}{r}_bias") for r in "qkv"}
    there = [b for b in parts.values() if b is not None and b.ndim == 1 and 3 * len(b) == len(weight)]
    if not there or "qkv" not in name.rpartition(".")[0] + name:
        return None
    return torch.cat([torch.zeros_like(there[0]) if b is None else b for b in parts.values()])


def _biases(named: dict[str, Tensor]) -> dict[str, str]:
    """Weight -> bias: parameters of one owner whose names differ in `weight` and `bias`, or w and b, alone."""

    def stem(name: str, words: tuple[re.Pattern[str], ...]) -> str:
        owner, _, last = name.rpartition(".")
        word = next((w for w in words if w.search(last)), words[0])
        return f"{owner}.{word.sub('', last).lower()}"

    known = {stem(n, BIAS): n for n in named if any(w.search(n.rpartition(".")[2]) for w in BIAS)}
    pairs = {n: known.get(stem(n, WEIGHT), n) for n, weight in named.items() if weight.ndim > 1}
    return {n: other for n, other in pairs.items() if named[other].numel() < named[n].numel()}


def _ways(weight: Tensor, name: str, sizes: Sizes) -> tuple[Tensor, ...]:
    """A bare parameter as (out, in): it is multiplied from the right in most code, so that it is (in, out)."""
    n = weight.shape
    if weight.ndim == 2:
        return (weight.T, weight) if n[0] in sizes.widths or n[0] == n[1] else (weight, weight.T)
    inputs = [
        weight.permute(h, d, D).reshape(-1, n[D])
        for h, d, D in AXES
        if n[h] in (sizes.heads, sizes.kv_heads) and n[D] in sizes.widths
    ]
    # (h,d,D) first; and an output by its name is one before it is anything else.
    outputs = [weight.permute(D, h, d).reshape(n[D], -1) for h, d, D in AXES[::-1] if n[h] == sizes.heads]
    ways = outputs + inputs if is_output(name) else inputs + outputs
    return tuple(w for i, w in enumerate(ways) if not any(torch.equal(w, other) for other in ways[:i]))


def _joined(matrices: list[Matrix], sizes: Sizes) -> list[Matrix]:
    """Twins that differ in one number of their name, as many as there are heads, as one map with heads in blocks."""
    groups: dict[str, list[Matrix]] = {}
    for matrix in matrices:
        groups.setdefault(re.sub(r"\d+", "*", matrix.name, count=1), []).append(matrix)
    result = []
    for pattern, twins in groups.items():
        alike = len({tuple(w.shape for w in t.ways) for t in twins}) == 1
        if "*" in pattern and len(twins) in (sizes.heads, sizes.kv_heads) and alike:
            result.append(_one(pattern.replace("*.", "").replace(".*", ""), twins, sizes))
        else:
            result += twins
    return result


def _one(name: str, twins: list[Matrix], sizes: Sizes) -> Matrix:
    """Heads side by side; those that read no input but a head's features are outputs, which are summed."""
    inputs = twins[0].weight.shape[1] in sizes.widths
    ways = tuple(torch.cat(same, 0 if inputs else 1) for same in zip(*(t.ways for t in twins), strict=True))
    biases = [t.bias for t in twins if t.bias is not None]
    bias = None if len(biases) < len(twins) else torch.cat(biases) if inputs else torch.stack(biases).sum(0)
    return Matrix(name, ways, bias)


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
