"""Right attention written in a random way: a class put together from independent choices, as plain Python source.

N batch, h heads, g key/value heads, T queries, S keys, d head width, D width
"""

import random
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")

CONSTRUCTORS = (
    "dim, num_heads", "d_model, n_heads", "embed_dim, num_heads", "hidden_size, num_attention_heads", "n_embd, n_head",
)  # fmt: skip
NAMES = ("q_proj k_proj v_proj o_proj", "to_q to_k to_v to_out", "w_q w_k w_v w_o", "query key value dense",
         "q k v o", "theta phi psi out")  # fmt: skip
CALLS = {"x": "x x x", "x, memory": "x memory memory", "query, key, value": "query key value"}

SPLITS = {
    "view": "y.reshape(*y.shape[:2], -1, self.d).transpose(1, 2)",
    "unflatten": "y.unflatten(-1, (-1, self.d)).transpose(1, 2)",
    "permute": "y.reshape(len(y), -1, y.shape[-1] // self.d, self.d).permute(0, 2, 1, 3)",
    "chunk": "torch.stack(y.split(self.d, -1), 1)",
    "heads innermost": "y.unflatten(-1, (self.d, -1)).permute(0, 3, 1, 2)",
}
SHARED = {
    "interleave": "y.repeat_interleave(self.h // self.g, 1)",
    "expand": "y[:, :, None].expand(-1, -1, self.h // self.g, -1, -1).flatten(1, 2)",
    "index": "y[:, torch.arange(self.h) // (self.h // self.g)]",
}
SCORES = {
    "matmul": "q @ k.mT",
    "einsum": "torch.einsum('nhtd,nhsd->nhts', q, k)",
    "keys first": "(k @ q.mT).mT",
    "baddbmm": "torch.baddbmm(q.new_zeros(1, 1, 1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0)"
    ".unflatten(0, q.shape[:2])",
    "products": "(q[..., :, None, :] * k[..., None, :, :]).sum(-1)",
    "reordered": "q.flip(-1) @ k.flip(-1).mT",
    "chunked": "sum(a @ b.mT for a, b in zip(q.split(2, -1), k.split(2, -1)))",
}
SCALES = {
    "queries": ("q = q / d**0.5", "", ""),
    "keys": ("k = k * d**-0.5", "", ""),
    "both": ("q, k = q / d**0.25, k / d**0.25", "", ""),
    "scores": ("", "scores = scores / math.sqrt(d)", ""),
    "masked scores": ("", "", "scores = scores * d**-0.5"),
}
MASKS = {
    "fill": "scores = scores.masked_fill(blocked, -torch.inf)",
    "where": "scores = torch.where(blocked, -torch.inf, scores)",
    "added": "scores = scores + torch.zeros(blocked.shape, dtype=scores.dtype).masked_fill(blocked, -torch.inf)",
}
SOFTMAXES = {
    "torch": "weights = scores.softmax(-1)",
    "functional": "weights = F.softmax(scores, dim=-1)",
    "by hand": """
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
    """,
    "log": "weights = scores.log_softmax(-1).exp()",
    "logsumexp": "weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()",
    "online": """
        top, total = torch.full_like(scores[..., :1], -torch.inf), torch.zeros_like(scores[..., :1])
        for block in scores.split(3, -1):
            higher = torch.maximum(top, block.amax(-1, keepdim=True))
            shift = higher.masked_fill(higher == -torch.inf, 0.0)
            total = total * (top - shift).exp() + (block - shift).exp().sum(-1, keepdim=True)
            top = higher
        weights = (scores - top).exp() / total
    """,
}
MIXES = {
    "matmul": "weights @ v",
    "einsum": "torch.einsum('nhts,nhsd->nhtd', weights, v)",
    "bmm": "torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).unflatten(0, v.shape[:2])",
    "products": "(weights[..., None] * v[..., None, :, :]).sum(-2)",
    "heads": "torch.stack([weights[:, i] @ v[:, i] for i in range(v.shape[1])], 1)",
    "queries": "torch.cat([weights[..., t : t + 1, :] @ v for t in range(weights.shape[-2])], -2)",
}
MERGES = {
    "flatten": "y.transpose(1, 2).flatten(2)",
    "reshape": "y.permute(0, 2, 1, 3).reshape(len(y), y.shape[2], -1)",
    "cat": "torch.cat(y.unbind(1), -1)",
}
EXECUTIONS = {
    "plain": "core(q, k, v, blocked)",
    "checkpoint": "checkpoint(core, q, k, v, blocked, use_reentrant=False)",
    "compile": "compiled(q, k, v, blocked)",
}
BLOCKED = {"allowed": "~mask", "blocked": "mask"}

FILE = '''"""{title}"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def drawn(*shape):
    return nn.Parameter(torch.randn(shape) * 0.2)


def core(q, k, v, blocked):
    """q (N,h,T,d), k and v (N,h,S,d)"""
    d = q.shape[-1]
    {before}
    scores = {scores}
    {after}
    if blocked is not None:
        {mask}
    {last}
    {softmax}
    return {mix}, weights


compiled = torch.compile(core, backend="eager")


class Attention(nn.Module):
    def __init__(self, {constructor}):
        super().__init__()
        self.D, self.h, self.g = {sizes}
        if self.D % self.h:
            raise ValueError(f"width {{self.D}} is not divisible by {{self.h}} heads")
        self.d = self.D // self.h
        D, h, g, d = self.D, self.h, self.g, self.d
        {init}

    def split(self, y):
        return {split}

    def shared(self, y):
        return {shared}

    def merge(self, y):
        return {merge}

    def forward(self, {call}, mask=None):
        h, g, d = self.h, self.g, self.d
        {project}
        k, v = self.shared(k), self.shared(v)
        blocked = None if mask is None else {blocked}
        {causal}
        y, weights = {execution}
        return {returned}
'''


class Draw:
    """Choices under one seed, each remembered by its name."""

    def __init__(self, seed: int) -> None:
        self.random, self.made = random.Random(seed), {"seed": str(seed)}

    def of(self, what: str, options: Iterable[Choice]) -> Choice:
        chosen = self.random.choice(list(options))
        self.made[what] = str(chosen)
        return chosen


def rewrite(seed: int) -> tuple[str, dict[str, str]]:
    """A file with a class `Attention` that is right, and the choices that it is made of."""
    draw = Draw(seed)
    parts = _sizes(draw) | _projected(draw) | _computed(draw)
    title = textwrap.fill(", ".join(f"{what}: {chosen}" for what, chosen in draw.made.items()), 110)
    return _filled(FILE, {**parts, "title": title}), draw.made


def _sizes(draw: Draw) -> dict[str, str]:
    width, heads = draw.of("constructor", CONSTRUCTORS).split(", ")
    grouped = draw.of("grouped", (False, False, True))
    return {
        "constructor": f"{width}, {heads}" + (", num_kv_heads" if grouped else ""),
        "sizes": f"{width}, {heads}, {'num_kv_heads' if grouped else heads}",
        "shared": SHARED[draw.of("shared", SHARED)] if grouped else "y",
    }


def _projected(draw: Draw) -> dict[str, str]:
    """Everything before and after `core`: the parameters, the call, heads cut and put together."""
    projection = draw.of("projection", PROJECTIONS)
    # What is projected by one map is one input.
    call = draw.of("call", list(CALLS)[: 1 if projection.startswith("qkv") else 2 if projection == "kv" else 3])
    roles = draw.of("names", NAMES).split()
    innermost = projection in FLAT and draw.made["grouped"] == "False" and draw.random.random() < 0.15
    split = draw.of("split", ["heads innermost"] if innermost else list(SPLITS)[:-1])
    init, project = PROJECTIONS[projection](draw, roles, CALLS[call].split())
    if projection in FLAT:
        project += "\nq, k, v = self.split(q), self.split(k), self.split(v)"
    more, output = OUTPUTS[draw.of("output", OUTPUTS)](draw, roles[3])
    merge = "y.permute(0, 2, 3, 1).flatten(2)" if innermost else MERGES[draw.of("merge", MERGES)]
    returned = output + draw.of("weights", (False, False, True)) * ", weights"
    return {"call": call, "init": f"{init}\n{more}", "split": SPLITS[split], "project": project, "merge": merge,
            "returned": returned, "causal": _causal(draw) if call == "x" else ""}  # fmt: skip


def _causal(draw: Draw) -> str:
    if not draw.of("causal", (False, False, True)):
        return ""
    return """
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        blocked = future if blocked is None else blocked | future
    """


def _computed(draw: Draw) -> dict[str, str]:
    before, after, last = SCALES[draw.of("scale", SCALES)]
    # The compiled ones are few, since they are slow.
    execution = draw.of("execution", ["plain"] * 9 + ["checkpoint"] * 4 + ["compile"])
    return {
        "before": before, "after": after, "last": last, "scores": SCORES[draw.of("scores", SCORES)],
        "mask": MASKS[draw.of("mask", MASKS)], "softmax": SOFTMAXES[draw.of("softmax", SOFTMAXES)],
        "mix": MIXES[draw.of("mix", MIXES)], "execution": EXECUTIONS[execution],
        "blocked": BLOCKED[draw.of("True means", BLOCKED)],
    }  # fmt: skip


def _filled(template: str, parts: dict[str, str]) -> str:
    """The template with each part in its place, lines of a part at the indent of that place."""
    lines = []
    for line in template.splitlines():
        text = line.format(**{name: textwrap.dedent(part).strip() for name, part in parts.items()})
        # A part that stands alone on its line may have several lines, or none.
        indent = line[: len(line) - len(line.lstrip())] if line.strip().startswith("{") else ""
        lines += [text] if not indent else textwrap.indent(text.strip(), indent).splitlines()
    return "\n".join(lines) + "\n"


# Projections: the code that makes the parameters, and the code that gives q, k and v of the three inputs;
# those of FLAT as (N,T,hd), the others as (N,h,T,d).

Code = tuple[str, str]


def _each(roles: Sequence[str], inputs: list[str]) -> Iterable[tuple[str, str, str]]:
    """Of queries, keys and values: the name, the number of heads, the input."""
    return zip(roles[:3], "hgg", inputs, strict=True)


def _linears(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    biases = draw.of("biases", ("111", "000", "101", "110"))
    init, calls = [], []
    for (role, n, x), bias in zip(_each(roles, inputs), biases, strict=True):
        init.append(f"self.{role} = nn.Linear(D, {n} * d, bias={bias == '1'})")
        calls.append(f"self.{role}({x})")
    return "\n".join(init), f"q, k, v = {', '.join(calls)}"


def _right_multiplied(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """Weights (in, out), with addmm where there is a bias."""
    bias = draw.of("biases", (True, False))
    init, calls = [], []
    for role, n, x in _each("qkv", inputs):
        init += [f"self.w_{role} = drawn(D, {n} * d)"] + [f"self.b_{role} = drawn({n} * d)"] * bias
        added = f"torch.addmm(self.b_{role}, {x}.flatten(0, 1), self.w_{role}).unflatten(0, {x}.shape[:2])"
        calls.append(added if bias else f"{x} @ self.w_{role}")
    return "\n".join(init), "q, k, v = (\n    " + ",\n    ".join(calls) + ",\n)"


def _fused(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """One map, its blocks in any order."""
    order = draw.of("order", ("q, k, v", "q, k, v", "k, q, v", "v, k, q"))
    lengths = ", ".join("h * d" if role == "q" else "g * d" for role in order.split(", "))
    name = draw.of("fused", ("qkv", "to_qkv", "c_attn", "in_proj"))
    init = f"self.{name} = nn.Linear(D, (h + 2 * g) * d, bias={draw.of('biases', (True, False))})"
    return init, f"{order} = self.{name}(x).split([{lengths}], -1)"


def _fused_right_multiplied(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """One map whose weight is (in, out)."""
    init = "self.c_attn_weight, self.c_attn_bias = drawn(D, (h + 2 * g) * d), drawn((h + 2 * g) * d)"
    added = "torch.addmm(self.c_attn_bias, x.flatten(0, 1), self.c_attn_weight).unflatten(0, x.shape[:2])"
    return init, f"q, k, v = {added}.split([h * d, g * d, g * d], -1)"


def _fused_in_groups(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """One map, each group of heads with its own queries, key and value side by side."""
    init = f"self.query_key_value = nn.Linear(D, (h + 2 * g) * d, bias={draw.of('biases', (True, False))})"
    cut = "self.query_key_value(x).unflatten(-1, (g, h // g + 2, d)).split([h // g, 1, 1], -2)"
    return init, f"q, k, v = (y.flatten(2) for y in {cut})"


def _keys_and_values(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """Keys and values by one map, in blocks or per head; their inputs are one, too."""
    bias, kv = draw.of("biases", (True, False)), draw.of("kv name", ("kv", "to_kv", "kv_proj"))
    init = f"self.{roles[0]} = nn.Linear(D, h * d, bias={bias})\nself.{kv} = nn.Linear(D, 2 * g * d, bias={bias})"
    y = f"self.{kv}({inputs[1]})"
    cut = {
        "blocks": f"{y}.chunk(2, -1)",
        "per head": f"(y.flatten(2) for y in {y}.unflatten(-1, (g, 2, d)).unbind(-2))",
    }
    return init, f"q = self.{roles[0]}({inputs[0]})\nk, v = {cut[draw.of('cut', cut)]}"


def _einsum(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    """Parameters of three axes."""
    axes = draw.of("axes", ("hDd", "Dhd", "hdD"))
    bias = draw.of("biases", (True, False))
    init, calls = [], []
    for role, n, x in _each("qkv", inputs):
        shape = ", ".join(n if axis == "h" else axis for axis in axes)
        init += [f"self.{role}_weight = drawn({shape})"] + [f"self.{role}_bias = drawn({n}, d)"] * bias
        calls.append(f"torch.einsum('ntD,{axes}->nhtd', {x}, self.{role}_weight)")
        calls[-1] += f" + self.{role}_bias[:, None]" * bias
    return "\n".join(init), "q, k, v = (\n    " + ",\n    ".join(calls) + ",\n)"


def _a_map_per_head(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    bias = draw.of("biases", (True, False))
    init, calls = [], []
    for role, n, x in _each(roles, inputs):
        init.append(f"self.{role} = nn.ModuleList(nn.Linear(D, d, bias={bias}) for _ in range({n}))")
        calls.append(f"torch.stack([head({x}) for head in self.{role}], 1)")
    return "\n".join(init), "q, k, v = (\n    " + ",\n    ".join(calls) + ",\n)"


def _a_fused_map_per_group(draw: Draw, roles: list[str], inputs: list[str]) -> Code:
    init = "self.heads = nn.ModuleList(nn.Linear(D, (h // g + 2) * d) for _ in range(g))"
    cut = "torch.stack([head(x) for head in self.heads], 1).unflatten(-1, (-1, d)).movedim(-2, 2)"
    return init, f"q, k, v = (y.flatten(1, 2) for y in {cut}.split([h // g, 1, 1], 2))"


Projection = Callable[[Draw, list[str], list[str]], Code]
FLAT: dict[str, Projection] = {
    "linears": _linears, "right multiplied": _right_multiplied, "qkv": _fused, "qkv in groups": _fused_in_groups,
    "qkv right multiplied": _fused_right_multiplied, "kv": _keys_and_values,
}  # fmt: skip
PROJECTIONS = FLAT | {"einsum": _einsum, "per head": _a_map_per_head, "qkv per group": _a_fused_map_per_group}


# Outputs: the code that makes the parameters, and the output of y (N,h,T,d).


def _linear_output(draw: Draw, name: str) -> Code:
    bias = draw.of("output bias", (True, False))
    return f"self.{name} = nn.Linear(h * d, D, bias={bias})", f"self.{name}(self.merge(y))"


def _right_multiplied_output(draw: Draw, name: str) -> Code:
    return f"self.{name}_weight, self.{name}_bias = drawn(h * d, D), drawn(D)", (
        f"self.merge(y) @ self.{name}_weight + self.{name}_bias"
    )


def _einsum_output(draw: Draw, name: str) -> Code:
    return f"self.{name}_weight = drawn(h, d, D)", f"torch.einsum('nhtd,hdD->ntD', y, self.{name}_weight)"


def _output_per_head(draw: Draw, name: str) -> Code:
    bias = draw.of("output bias", (True, False))
    init = f"self.{name} = nn.ModuleList(nn.Linear(d, D, bias={bias}) for _ in range(h))"
    return init, f"sum(out(head) for out, head in zip(self.{name}, y.unbind(1)))"


def _no_output(draw: Draw, name: str) -> Code:
    return "", "self.merge(y)"


OUTPUTS = {"linear": _linear_output, "right multiplied": _right_multiplied_output, "einsum": _einsum_output,
           "per head": _output_per_head, "none": _no_output}  # fmt: skip
TABLES = {"projection": PROJECTIONS, "split": SPLITS, "shared": SHARED, "scale": SCALES, "scores": SCORES,
          "mask": MASKS, "softmax": SOFTMAXES, "mix": MIXES, "merge": MERGES, "output": OUTPUTS, "call": CALLS,
          "execution": EXECUTIONS}  # fmt: skip
