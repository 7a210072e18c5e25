"""The linear maps of a module: their weights as (out, in) with their biases, and what their names speak for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

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


FUSED = re.compile(r"qkv|query_key_value|in_proj|c_attn|attn_proj|(^|[._])attn$", re.I)


PAIR = re.compile(r"(^|[._])((w|to|linear|lin|fc)_?)?(kv|key_value)", re.I)


def roles_of(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> dict[str, list[str]]:
    """What the name of each map speaks for: some of q, k, v and o, or fused ones as "qkv" and "kv"."""
    roles = {}
    for m in joined(list(matrices_of(module, sizes, taken)), sizes):
        said = [r for r in "qkvo" if ROLES[r].search(m.name)]
        inputs = [r for r in said if r != "o"]  # q_proj ends like the proj of outputs
        roles[m.name] = ["qkv"] if FUSED.search(m.name) else ["kv"] if PAIR.search(m.name) else inputs or said
    return roles


def named_beyond_doubt(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> bool:
    """Whether the names alone tell which map is which: one of each role, or a fused one, and nothing else."""
    roles = roles_of(module, sizes, taken)
    said = sorted(r[0] for r in roles.values() if len(r) == 1)
    alone = len(said) == len(roles) == len(set(said))
    return alone and said in (
        ["k", "o", "q", "v"],
        ["k", "q", "v"],
        ["o", "qkv"],
        ["qkv"],
        ["kv", "o", "q"],
        ["kv", "q"],
    )


def roleless(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> list[str]:
    """Maps without a role, and those that another map has the role of too."""
    roles = roles_of(module, sizes, taken)
    said = [r for rs in roles.values() for r in rs]
    return [name for name, rs in roles.items() if not rs or any(said.count(r) > 1 for r in rs)]


def matrices_of(module: nn.Module, sizes: Sizes, taken: Collection[str]) -> Iterator[Matrix]:
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


def joined(matrices: list[Matrix], sizes: Sizes) -> list[Matrix]:
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
