"""The call of a target as Python code: it is run by the adapter and printed in a reproduction, so both are the same.

N batch, T queries, S keys, h heads; `m` is the mask with four axes, True = may attend
"""

from __future__ import annotations

from attncheck_adapters.infer.form import Form

# How a native mask is cut from `m`, and for which masks it suffices.
NATIVE: dict[str, tuple[str, str]] = {
    "NS": ("m[:, 0, 0].expand(N, S)", "padding"),
    "N11S": ("m.expand(N, 1, 1, S)", "padding"),
    "N1S": ("m[:, 0].expand(N, 1, S)", "padding"),
    "TS": ("m[0, 0].expand(T, S)", "shared"),
    "1TS": ("m[0].expand(1, T, S)", "shared"),
    "11TS": ("m.expand(1, 1, T, S)", "shared"),
    "N1TS": ("m.expand(N, 1, T, S)", "sample"),
    "NTS": ("m[:, 0].expand(N, T, S)", "sample"),
    "1hTS": ("m.expand(1, h, T, S)", "head"),
    "hTS": ("m[0].expand(h, T, S)", "head"),
    "NhTS": ("m.expand(N, h, T, S)", "any"),
    "(Nh)TS": ("m.expand(N, h, T, S).reshape(N * h, T, S)", "any"),
}
SUFFICES = {
    "padding": "allowed.ndim == 4 and m.shape[1] == m.shape[2] == 1",
    "shared": "m.shape[0] == m.shape[1] == 1",
    "sample": "m.shape[1] == 1",
    "head": "m.shape[0] == 1",
    "any": "True",
}
# Which canonical masks (MASK_AXES) can be said with a native mask.
CANONICAL = {
    "padding": ("N11S",), "shared": ("TS",), "sample": ("TS", "N11S", "N1TS"), "head": ("TS", "1hTS"),
    "any": ("TS", "N11S", "N1TS", "1hTS", "NhTS"),
}  # fmt: skip
ENCODE = {
    "allowed": "{m}",
    "blocked": "~{m}",
    "int": "{m}.long()",
    "additive": "torch.zeros({m}.shape, dtype=query.dtype, device=query.device).masked_fill(~{m}, -torch.inf)",
}


def call_code(form: Form, heads: int, kernel: bool = False) -> str:
    """`def call(query, key, value, allowed[, weights])` for the global `target`."""
    flag = ", weights=True" if "weights" in form.names else ""
    lines = [f"def call(query, key, value, allowed{flag}):", "    given = {}"]
    if form.masks:
        lines += [
            "    if allowed is not None:",
            f"        N, h, T, S = len(query), {heads}, query.shape[-2], key.shape[-2]",
        ]
        lines += ["        m = allowed if allowed.ndim == 4 else allowed[None, None]", *_branches(form)]
    lines += [f"    given[{form.names['weights']!r}] = weights"] if flag else []
    return "\n".join(lines + _invocation(form))


def _branches(form: Form) -> list[str]:
    ranked = sorted(form.masks, key=lambda mask: list(SUFFICES).index(NATIVE[mask[1]][1]))
    lines, word = [], "if"
    for argument, axes, encoding in ranked:
        cut, kind = NATIVE[axes]
        lines.append(f"        {word} {SUFFICES[kind]}:")
        lines += [f"            m = {cut}", f"            given[{argument!r}] = {ENCODE[encoding].format(m='m')}"]
        word = "elif"
    if NATIVE[ranked[-1][1]][1] != "any":
        lines += ["        else:", "            raise NotImplementedError('the target takes no mask of these axes')"]
    return lines


def _invocation(form: Form) -> list[str]:
    flip = form.layout == "seq-first"
    lines = []
    if flip:
        lines += [
            "    same, tied = query is key, key is value",
            "    query, key, value = (x.transpose(0, 1) for x in (query, key, value))",
            "    key, value = (query if same else key), (query if same else key) if tied else value",
        ]
    given = [f"given[{form.names[role]!r}] = {role}" for role in ("query", "key", "value") if role in form.names]
    if "memory" in form.names:
        memory = f"given[{form.names['memory']!r}] = key"
        given.append(f"if key is not query: {memory}" if "memory" in form.extra.get("optional", ()) else memory)
    lines += [f"    {line}" for line in given]
    lines += ["    result = target(**given)", f"    output, returned = {form.output}, {form.weights or 'None'}"]
    return [*lines, f"    return {'output.transpose(0, 1)' if flip else 'output'}, returned"]


def canonical_masks(form: Form) -> tuple[str, ...]:
    """Which of MASK_AXES the target can be given."""
    said = {axes for _, native, _ in form.masks for axes in CANONICAL[NATIVE[native][1]]}
    return tuple(axes for axes in ("TS", "N11S", "N1TS", "1hTS", "NhTS") if axes in said)
