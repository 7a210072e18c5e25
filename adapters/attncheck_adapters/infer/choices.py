"""Every way to read one part of a module beside its projections, the likeliest first and at last not at all.

D width, h heads, g key/value heads, d head width
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attncheck_adapters.infer.parts import MEMORY, Norm, Parts
from attncheck_adapters.infer.sizes import Sizes
from attncheck_reference.positions import Alibi, Rotary, alibi_slopes
from attncheck_reference.tables import BucketBias, OffsetBias, TableBias

ROTATES = re.compile(r"rope|rotary|rotate|freqs|inv_freq|_cis\b", re.I)
SLOPES = re.compile(r"alibi|slopes", re.I)
RMS = re.compile(r"\brms|rsqrt", re.I)
UNIT = re.compile(r"normalize\(|\.norm\(|cosine_sim|l2norm|l2_norm", re.I)
ADDS_QUERY = re.compile(r"residual|shortcut|identity|\+\s*(x|q|query|queries|inputs?|hidden_states|src|h|tgt)\b"
                        r"|\b(x|residual|q|query|queries|hidden_states|inputs?|src|tgt|h)\s*\+[^=]")  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One way to read one part: keywords of the reference, its parameters, a factor on the output, in words."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    factor: Tensor | None = None
    says: Mapping[str, str] = field(default_factory=dict)  # conventions that come with it
    told: str = ""


LONG = 64  # more positions than any check asks for
NONE = Choice()
PLACED, BELOW = {"positions": "relative"}, {"weight_sum": "below-one"}


@dataclass(frozen=True)
class Evidence:
    """What is known of a target beside its parameters."""

    text: str  # names of its parts, and its source
    values: Mapping[str, Any]  # of its constructor and attributes
    rotated: int | None  # features that the tables of the call rotate
    placed: bool = True  # whether the order of tokens may matter
    unused: frozenset[str] = frozenset()  # parameters that receive no gradient from a plain call


def of_all(parts: Parts, sizes: Sizes, evidence: Evidence, module: nn.Module) -> list[list[Choice]]:
    """The choices of every part."""
    return [
        rotations(evidence, module, sizes.head_width), biases(parts, sizes, evidence, module),
        head_norms(parts, sizes, evidence), sinks(parts, sizes), scales(parts, sizes, sizes.head_width),
        gates(parts, sizes), factors(parts), surroundings(parts, evidence),
    ]  # fmt: skip


def rotations(evidence: Evidence, module: nn.Module, d: int) -> list[Choice]:
    """Su et al. 2021, RoFormer: either pairing, all of a head or a part, the base where the target says it."""
    if not evidence.placed or (evidence.rotated is None and not ROTATES.search(evidence.text)):
        return [NONE]
    numbers, bases = evidence.values, bases_of(evidence)
    parts = [int(v) for k, v in numbers.items() if re.search(r"rot\w*(dim|ndims|width)|rope_dim", k, re.I) and v >= 2]
    parts += [
        int(d * v) for k, v in numbers.items() if re.search("pct|percent|partial|fraction", k, re.I) and 0 < v <= 1
    ]
    seen = list(_frequencies(module))
    if evidence.rotated is not None:
        pairs = [(10000.0, evidence.rotated)]
    else:
        pairs = seen + list(itertools.product([*bases, 10000.0], [*parts, d, d // 2, d // 4]))
    found = []
    for (base, part), pairing in itertools.product(dict.fromkeys(pairs), ("half", "interleaved")):
        if 2 <= part <= d and part % 2 == 0:
            told = f"rotary {pairing}, base {base:g}, {part} of {d} features"
            found.append(Choice({"rotary": Rotary(d, base, pairing, part)}, says=PLACED, told=told))
    return [*found, NONE]


def bases_of(evidence: Evidence) -> list[float]:
    """Bases of rotations that the target says."""
    return [float(v) for k, v in evidence.values.items() if re.search("theta|base", k, re.I) and v > 1]


def positions_are_seen(module: nn.Module, evidence: Evidence) -> bool:
    """Whether all that the code says of positions is in buffers, in tables of ours, in parameters, or in a base."""
    if not evidence.placed:
        return True
    turned = evidence.rotated is not None or any(True for _ in _frequencies(module)) or bool(bases_of(evidence))
    return (turned or not ROTATES.search(evidence.text)) and not SLOPES.search(evidence.text)


def _frequencies(module: nn.Module) -> Iterator[tuple[float, int]]:
    """(base, features) of buffers that hold 1, base^(-1/P), ...; or a table of complex numbers of that angle."""
    for _, buffer in module.named_buffers():
        row = buffer[1].angle() if buffer.ndim == 2 and buffer.is_complex() and len(buffer) > 1 else buffer
        if row.ndim == 1 and len(row) > 1 and not row.is_complex() and abs(float(row[0]) - 1) < 1e-6 and 0 < row[1] < 1:
            yield round(float(row[1].double() ** -len(row)), 3), 2 * len(row)


def biases(parts: Parts, sizes: Sizes, evidence: Evidence, module: nn.Module) -> list[Choice]:
    """Of positions: slopes (Press et al. 2022), T5's buckets, a table of offsets, a table of pairs."""
    found: list[Choice] = []
    if not evidence.placed:
        return [NONE]
    if SLOPES.search(evidence.text):
        held = [b.flatten() for n, b in module.named_buffers() if "slope" in n.lower() and b.numel() == sizes.heads]
        for form in ("symmetric", "signed"):
            for slopes in [*(b.abs() for b in held), alibi_slopes(sizes.heads)]:
                for factor, told in ((1.0, ""), (sizes.head_width**-0.5, ", scaled like the scores")):
                    bias = Alibi(sizes.heads, form, slopes * factor)
                    found.append(Choice({"position_bias": bias}, says=PLACED, told=f"ALiBi, {form}{told}"))
    for name, table in parts.tables.items():
        found += list(of_table(name, table, sizes.heads, evidence, module))
    return [*found, NONE]


def of_table(name: str, table: Tensor, h: int, evidence: Evidence, module: nn.Module) -> Iterator[Choice]:
    flat = table[0] if table.ndim == 4 and len(table) == 1 else table
    if flat.ndim == 3 and flat.shape[0] == h and flat.shape[1] == flat.shape[2]:
        yield _biased(TableBias(flat.shape[1], h), flat, f"a learned bias of every pair of positions ({name})")
        return
    if flat.ndim != 2 or h not in flat.shape:
        return
    rows = flat if flat.shape[1] == h else flat.T
    indices = [
        b for _, b in module.named_buffers() if b.dtype == torch.long and b.ndim == 2 and b.shape[0] == b.shape[1]
    ]
    for index in indices:
        if index.numel() and int(index.max()) < len(rows):
            told = f"a learned bias by a table of pairs of positions ({name})"
            yield _biased(TableBias(len(index), h, index, len(rows)), rows, told)
    offset = torch.arange(LONG) - torch.arange(LONG)[:, None]
    for lag, way in ((-offset, "before the query"), (offset, "after it")):
        told = f"a learned bias of how far a key stands {way} ({name})"
        index = lag.clamp(0, len(rows) - 1)
        yield _biased(TableBias(LONG, h, index, len(rows)), rows, told)
    if len(rows) % 2:
        for reverse, clamp in itertools.product((False, True), ("none", "clip")):
            told = f"a learned bias of every offset ({name})"
            yield _biased(OffsetBias((len(rows) + 1) // 2, h, reverse, clamp), rows, told)
    said = [int(v) for k, v in evidence.values.items() if "max_dist" in k and isinstance(v, int)]
    for both, far in itertools.product((True, False), [*said, 128]):
        if len(rows) >= 8 and len(rows) % 2 == 0 and far > len(rows) // 2:
            told = f"T5's buckets of distances, {'both sides' if both else 'the past alone'} ({name})"
            yield _biased(BucketBias(len(rows), h, both, far), rows, told)
            # Its authors scale the initial weights instead of the scores.
            yield _biased(BucketBias(len(rows), h, both, far), rows, f"{told}, scores not scaled", scale=1.0)


def _biased(bias: nn.Module, table: Tensor, told: str, **settings: Any) -> Choice:
    return Choice({"position_bias": bias, **settings}, {"position_bias.table": table}, says=PLACED, told=told)


def head_norms(parts: Parts, sizes: Sizes, evidence: Evidence) -> list[Choice]:
    """Of queries and keys, over a head or over all features (Henry et al. 2020); without weights, to length 1."""
    q = next((n for n in parts.norms if n.role in ("q", "both")), None)
    k = next((n for n in parts.norms if n.role in ("k", "both")), None)
    if q is None or k is None:
        found = [Choice({"qk_norm": "unit"}, told="queries and keys of length 1")] if UNIT.search(evidence.text) else []
        if RMS.search(evidence.text) and not parts.norms:
            for eps in (1e-6, 1e-5):
                settings = {"qk_norm": "rms", "qk_norm_eps": eps}
                found.append(Choice(settings, told="queries and keys normalised (rms, without weights)"))
        return [*found, NONE]
    size = q.weight.numel()
    over = "all" if size == sizes.heads * sizes.head_width and q.weight.ndim == 1 else "head"
    over = "each" if q.weight.ndim == 3 else over
    found = []
    for kind, first, one in itertools.product(q.kinds, (True, False), (0.0, 1.0)):
        if over == "all" and not first:
            continue
        weights = {"q_norm.weight": q.weight + one, "k_norm.weight": k.weight + one}
        weights |= {f"{r}_norm.bias": n.bias for r, n in (("q", q), ("k", k)) if n.bias is not None}
        settings = {"qk_norm": kind, "qk_norm_over": over, "qk_norm_first": first, "qk_norm_eps": _eps(q, kind)}
        found.append(Choice(settings, weights, told=f"queries and keys normalised ({kind}, over {over})"))
    return [*found, NONE]


def _eps(norm: Norm, kind: str) -> float:
    return (1e-5 if kind == "layer" else 1e-6) if math.isnan(norm.eps) else norm.eps


def sinks(parts: Parts, sizes: Sizes) -> list[Choice]:
    """One more logit a head (gpt-oss), or keys and values of its own that every query sees."""
    found = [
        Choice({}, {"sink": sink}, says=BELOW, told=f"a learned sink ({name})") for name, sink in parts.sinks.items()
    ]
    if {"k", "v"} <= set(parts.extra):
        g = sizes.kv_heads
        k, v = (parts.extra[r] for r in "kv")
        if k.numel() % (g * sizes.head_width) == 0 and v.numel() % g == 0:
            m = k.numel() // (g * sizes.head_width)
            by_head = {"extra_k": k.reshape(g, m, -1), "extra_v": v.reshape(g, m, -1)}
            by_key = {f"extra_{r}": x.reshape(m, g, -1).transpose(0, 1) for r, x in (("k", k), ("v", v))}
            found += [Choice({}, w, says=BELOW, told=f"{m} learned keys of its own") for w in (by_key, by_head)]
    return [*found, NONE]


def scales(parts: Parts, sizes: Sizes, d: int) -> list[Choice]:
    """A learned factor of the scores, of each head or of all."""
    found = []
    for name, t in parts.scales.items():
        root = d**-0.5
        ways = {"t": t, "exp(t)": t.exp(), "1/t": 1 / t, "t/sqrt(d)": t * root, "exp(t)/sqrt(d)": t.exp() * root,
                "1/(t sqrt(d))": root / t, "exp(min(t, log 100))": t.clamp(max=math.log(100)).exp(),
                "exp(-t)": (-t).exp(), "softplus(t)": nn.functional.softplus(t)}  # fmt: skip
        for text, value in ways.items():
            scale = value.double().reshape(-1, 1, 1) if len(value) > 1 else float(value)
            found.append(Choice({"scale": scale}, told=f"scores times {text}, t = {name}"))
        if len(t) == sizes.heads and sizes.heads > 1:
            found.append(Choice({}, {"sink": t}, says=BELOW, told=f"a learned sink ({name})"))
    return [*found, NONE]


def gates(parts: Parts, sizes: Sizes) -> list[Choice]:
    """sigmoid of a linear map of the query, times what was merged."""
    found = []
    for name, (weight, bias) in parts.gates.items():
        kind = "head" if len(weight) == sizes.heads else "feature"
        weights = {"gate.weight": weight} | ({} if bias is None else {"gate.bias": bias})
        found.append(Choice({"gate": kind}, weights, told=f"gated by {name}"))
    return [*found, NONE]


def factors(parts: Parts) -> list[Choice]:
    """A learned factor of the output (Touvron et al. 2021, CaiT), or a bounded one (Alayrac et al. 2022, Flamingo)."""
    found = []
    for name, g in parts.factors.items():
        for text, value in (("tanh", g.tanh()), ("itself", g), ("sigmoid", g.sigmoid())):
            found.append(Choice(factor=value, told=f"the output times {name} ({text})"))
    return [*found, NONE]


def surroundings(parts: Parts, evidence: Evidence) -> list[Choice]:
    """Norms of the input and the output, and the residual."""
    norms = [n for n in parts.norms if n.role == ""]
    memory = next((n for n in norms if MEMORY.search(n.name)), None) if len(norms) > 1 else None
    others = [n for n in norms if n is not memory]
    adds = (True, False) if ADDS_QUERY.search(evidence.text) else (False,)
    found: list[Choice] = []
    if len(others) == 1:
        for (kind, residual), place in itertools.product(itertools.product(others[0].kinds, adds), ("post", "pre")):
            rules = ("tied", "same", "never", "own") if place == "pre" else ("tied",)
            found += [
                _around(others[0], kind, place, residual, r, memory) for r in rules if (r == "own") == bool(memory)
            ]
    found += [Choice({"residual": True}, told="the query is added to the output")] if adds[0] else []
    return [*found, NONE] if norms else [NONE, *found]


def _around(norm: Norm, kind: str, place: str, residual: bool, rule: str, memory: Norm | None) -> Choice:
    settings: dict[str, Any] = {f"{place}_norm": kind, "norm_eps": _eps(norm, kind), "residual": residual}
    weights = {f"{place}_norm.weight": norm.weight}
    weights |= {f"{place}_norm.bias": norm.bias} if norm.bias is not None else {}
    if place == "pre":
        settings["pre_norm_memory"] = rule
    if memory is not None:
        weights |= {"memory_norm.weight": memory.weight}
        weights |= {"memory_norm.bias": memory.bias} if memory.bias is not None else {}
    told = f"normalised ({kind}) {'before' if place == 'pre' else 'after'}{', query added' if residual else ''}"
    return Choice(settings, weights, told=told)
