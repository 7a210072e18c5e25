"""What a module has beside its projections: norms, tables of positions, sinks, temperatures, gates, factors.

Told apart by name and shape; whether they are read rightly is decided by parity. D width, h heads, g key/value heads,
d head width
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torch import Tensor, nn

from attncheck_adapters.infer.sizes import Sizes

NORM = re.compile(r"norm|(^|[._])ln|gamma|(^|[._])g$|rms|layernorm", re.I)
QUERY, KEY = re.compile(r"(^|[._])q|query|_q(\.|$|_)", re.I), re.compile(r"(^|[._])k|key|_k(\.|$|_)", re.I)
MEMORY = re.compile(r"mem|context|(^|[._])kv|media|enc|(^|[._])y", re.I)
TABLE = re.compile(r"rel|bias_table|pos|alibi|bucket|distance", re.I)
GATE = re.compile(r"gat(e|ing)|(^|[._])((linear|to|w|lin|fc)_g|g_?(proj|linear|lin))(\.|$)", re.I)
SINK = re.compile(r"sink", re.I)
SCALE = re.compile(r"scale|temp|(^|[._])tau|logit", re.I)
FACTOR = re.compile(r"gate|alpha|gamma|layer_?scale|(^|[._])ls|lambda", re.I)
EXTRA_BOTH = re.compile(r"(null|mem|bias|sink|extra|prefix)_?kvs?$", re.I)
EXTRA_KEY, EXTRA_VALUE = (re.compile(rf"(null|mem|bias|sink|extra|prefix)_?{x}", re.I) for x in ("k", "v"))


@dataclass(frozen=True)
class Norm:
    name: str
    weight: Tensor
    bias: Tensor | None
    kinds: tuple[str, ...]  # rms, layer, the likelier first
    eps: float
    role: str  # q, k, both or "" for one of the inputs or the output


@dataclass
class Parts:
    """Parameters by what they may be; `taken` are those that are no projection."""

    norms: list[Norm] = field(default_factory=list)
    tables: dict[str, Tensor] = field(default_factory=dict)
    sinks: dict[str, Tensor] = field(default_factory=dict)
    scales: dict[str, Tensor] = field(default_factory=dict)
    factors: dict[str, Tensor] = field(default_factory=dict)
    gates: dict[str, tuple[Tensor, Tensor | None]] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)  # k and v of keys that every query sees
    taken: set[str] = field(default_factory=set)


def parts_of(module: nn.Module, sizes: Sizes) -> Parts:
    """Every parameter that is no projection, under what its name and shape speak for."""
    parts = Parts()
    named = {n: p.detach() for n, p in module.named_parameters()}
    owners = dict(module.named_modules())
    for name, weight in named.items():
        owner = owners[name.rpartition(".")[0]]
        if name not in parts.taken and _place(parts, name, weight, owner, named, sizes):
            parts.taken.add(name)
    return parts


def _place(parts: Parts, name: str, weight: Tensor, owner: nn.Module, named: dict[str, Tensor], sizes: Sizes) -> bool:
    """Put one parameter where it belongs; False for what may be a projection or its bias."""
    D, h, n = sizes.widths[0], sizes.heads, weight.numel()
    linear = isinstance(owner, nn.Linear)
    bias_name = name.rpartition(".")[0] + ".bias"
    if weight.ndim == 2 and GATE.search(name) and weight.shape[1] == D:
        bias = named.get(bias_name) if linear else None
        parts.gates[name] = (weight, bias)
        parts.taken |= {bias_name} if bias is not None else set()
    elif SINK.search(name) and n == h:
        parts.sinks[name] = weight.flatten()
    elif EXTRA_BOTH.search(name) and weight.shape[0] == 2 and not linear:
        parts.extra |= {"k": weight[0], "v": weight[1]}
    elif EXTRA_KEY.search(name) and n % sizes.kv_heads == 0 and not linear:
        parts.extra["k"] = weight
    elif EXTRA_VALUE.search(name) and n % sizes.kv_heads == 0 and not linear:
        parts.extra["v"] = weight
    elif isinstance(owner, nn.Embedding) or (
        weight.ndim > 1 and TABLE.search(name) and h in weight.shape and not linear
    ):
        parts.tables[name] = weight
    elif linear or name.endswith("bias") or re.search(r"(^|[._])b_?[qkvo]?$", name):
        return False
    elif NORM.search(name) and max(weight.shape, default=0) > 1 and _is_row(weight, sizes):
        parts.norms.append(_norm(name, weight, owner, named))
        parts.taken |= {b for b in (bias_name, name.rpartition(".")[0] + ".beta") if b in named}
    elif SCALE.search(name) and n in (1, h):
        parts.scales[name] = weight.flatten()
    elif FACTOR.search(name) and n in (1, D):
        parts.factors[name] = weight.flatten()
    elif n in (1, h) and weight.ndim != 2:
        parts.scales[name] = weight.flatten()
    else:
        return False
    return True


def _is_row(weight: Tensor, sizes: Sizes) -> bool:
    """A vector, or one a head as (h,1,d)."""
    return weight.ndim == 1 or (weight.ndim == 3 and weight.shape[1] == 1) or weight.squeeze().ndim == 1


def _norm(name: str, weight: Tensor, owner: nn.Module, named: dict[str, Tensor]) -> Norm:
    stem = name.rpartition(".")[0]
    bias = next((named[b] for b in (stem + ".bias", stem + ".beta") if stem and b in named), None)
    word = type(owner).__name__.lower()
    kinds = ("layer",) if bias is not None or isinstance(owner, nn.LayerNorm) else ("rms", "layer")
    kinds = ("rms",) if "rms" in word else kinds
    eps = next((float(v) for n in ("eps", "variance_epsilon", "epsilon") if (v := getattr(owner, n, None)) is not None),
               float("nan"))  # fmt: skip
    label = re.sub(r"\.?(weight|scale|gamma|g)$", "", name)
    is_q, is_k = bool(QUERY.search(label)), bool(KEY.search(label))
    both = "qk" in label.lower().replace("_", "")
    role = "both" if both else "q" if is_q and not is_k else "k" if is_k and not is_q else ""
    return Norm(name, weight, bias, kinds, eps, role)
