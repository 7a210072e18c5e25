"""The call of a target as Python code: it is run by the adapter and printed in a reproduction, so both are the same.

N batch, T queries, S keys, h heads; `m` is the mask with four axes, True = may attend
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from attncheck.inputs import Inputs
from attncheck_adapters.infer import extras
from attncheck_adapters.infer.form import MASK_ROLES, Form

Mask = tuple[str, str, str]  # (argument, native axes, encoding)

# How a native mask is cut from `m`, and for which masks it suffices.
NATIVE: dict[str, tuple[str, str]] = {
    "NS": ("m[:, 0, 0].expand(N, S)", "padding"),
    "N": ("m[:, 0, 0].expand(N, S).sum(-1)", "prefix"),
    "N11S": ("m.expand(N, 1, 1, S)", "padding"),
    "N1S": ("m[:, 0].expand(N, 1, S)", "padding"),
    "TS": ("m[0, 0].expand(T, S)", "shared"),
    "1TS": ("m[0].expand(1, T, S)", "shared"),
    "11TS": ("m.expand(1, 1, T, S)", "shared"),
    "N1TS": ("m.expand(N, 1, T, S)", "sample"),
    "NTS": ("m[:, 0].expand(N, T, S)", "sample"),
    "TSN": ("m[:, 0].expand(N, T, S).permute(1, 2, 0)", "sample"),
    "TSN1": ("m[:, 0].expand(N, T, S).permute(1, 2, 0)[..., None]", "sample"),
    "1hTS": ("m.expand(1, h, T, S)", "head"),
    "hTS": ("m[0].expand(h, T, S)", "head"),
    "NhTS": ("m.expand(N, h, T, S)", "any"),
    "(Nh)TS": ("m.expand(N, h, T, S).reshape(N * h, T, S)", "any"),
}
SUFFICES = {
    "prefix": "allowed.ndim == 4 and m.shape[1] == m.shape[2] == 1 and bool((m[..., :-1] >= m[..., 1:]).all())",
    "padding": "allowed.ndim == 4 and m.shape[1] == m.shape[2] == 1",
    "shared": "m.shape[0] == m.shape[1] == 1",
    "sample": "m.shape[1] == 1",
    "head": "m.shape[0] == 1",
    "any": "True",
}
# Which canonical masks (MASK_AXES) can be said with a native mask.
CANONICAL = {
    "prefix": ("N11S",), "padding": ("N11S",), "shared": ("TS",), "sample": ("TS", "N11S", "N1TS"),
    "head": ("TS", "1hTS"),
    "any": ("TS", "N11S", "N1TS", "1hTS", "NhTS"),
}  # fmt: skip
ENCODE = {
    "allowed": "m",
    "blocked": "~m",
    "int-allowed": "m.long()",
    "int-blocked": "(~m).long()",
    "additive": "torch.zeros(m.shape, dtype=query.dtype, device=query.device).masked_fill(~m, -torch.inf)",
}
# Where the masks of a call are not known, and where one of them is a bias.
FLOATS = {
    "either": f"m if m.is_floating_point() else {ENCODE['additive']}",
    "bias": "m.to(query.dtype)",
}


# The axes that are exchanged on the way in and out.
TURNED = {"seq-first": "0, 1", "heads-last": "1, 2"}


def handed_over(mask: Tensor, axes: str, encoding: str, heads: int, inputs: Inputs) -> Tensor:
    """A mask of four axes as one argument takes it."""
    N, T, S = len(inputs.query), inputs.query.shape[-2], inputs.key.shape[-2]
    native = eval(NATIVE[axes][0], {"m": mask, "N": N, "h": heads, "T": T, "S": S})
    handed: Tensor = eval(ENCODE[encoding], {"m": native, "torch": torch, "query": inputs.query})
    return handed


def call_code(form: Form, heads: int, masks: Sequence[Tensor | None] | None = None) -> str:
    """`def call(query, key, value, allowed[, weights])` for the global `target`.

    masks: those that the call will see; where given, only what they need is written.
    """
    both: list[Mask] = form.extra.get("both", [])
    flag = (", weights=True" if "weights" in form.names else "") + (", masks='one'" if both else "")
    flag += ", causal='mask'" if form.flag else ""
    helper = extras.HELPER if "" in form.given else ""
    lines = [f"{helper}def call(query, key, value, allowed{flag}):", *extras.lines(form)]
    if form.plain is not None:
        nothing = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        masks = None if masks is None else [nothing if mask is None else mask for mask in masks]
        lines += [
            "    if allowed is None:",
            "        allowed = torch.ones(1, 1, 1, key.shape[-2], dtype=torch.bool, device=key.device)",
        ]
    lines += _flagged(form)
    ranked = sorted(form.masks, key=lambda mask: list(SUFFICES).index(NATIVE[mask[1]][1]))
    ranked = [(argument, axes, _told(encoding, masks)) for argument, axes, encoding in ranked]
    needed = ranked if masks is None else [m for m in ranked if any(_first(ranked, seen) == m for seen in masks)]
    always = (
        not both
        and not form.flag
        and masks is not None
        and len(needed) == 1
        and all(mask is not None for mask in masks)
    )
    if needed:
        if always and needed[0][1] == "TS" and all(mask is not None and mask.ndim == 2 for mask in masks or ()):
            encoded = re.sub(r"\bm\b", "allowed", _code(needed[0][2]))
            return "\n".join(lines + _invocation(form, f"{needed[0][0]}={encoded}"))
        shape = f"        N, h, T, S = len(query), {heads}, query.shape[-2], key.shape[-2]"
        body = [shape, "        m = allowed if allowed.ndim == 4 else allowed[None, None]"]
        body += _encoded(needed[0], "        ") if always else _branches(needed) + _fillers(both)
        lines += (
            [line[4:] for line in body]
            if always
            else [f"    given = {_blank(form)}", "    if allowed is not None:", *body]
        )
    if form.flag and not needed:
        lines += ["    if allowed is not None:", "        raise NotImplementedError('the target takes no such mask')"]
    given = f"{needed[0][0]}=m" if always else "**given" if needed else ""
    return "\n".join(lines + _invocation(form, given))


def _flagged(form: Form) -> list[str]:
    """A triangle is said by the flag for it, where that is asked for."""
    if not form.flag:
        return []
    corner = "" if form.flag_corner == "top-left" else " and query.shape[-2] == key.shape[-2]"
    return [
        f"    flagged = causal == 'flag' and allowed is not None and allowed.ndim == 2{corner}",
        "    triangle = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()",
        "    flagged = flagged and allowed.equal(triangle)",
        "    allowed = None if flagged else allowed",
    ]


def _blank(form: Form) -> str:
    names = [form.names[role] for role in MASK_ROLES if role in form.extra.get("required", ())]
    return "{" + ", ".join(f"{name!r}: None" for name in names if form.plain is None or form.plain[0] != name) + "}"


def _told(encoding: str, masks: Sequence[Tensor | None] | None) -> str:
    """The encoding that these masks need: of floats where they are floats, and of either where they are not known."""
    if encoding != "additive" or masks is None:
        return "either" if encoding == "additive" else encoding
    return "bias" if any(mask is not None and mask.is_floating_point() for mask in masks) else encoding


def _code(encoding: str) -> str:
    return ENCODE.get(encoding) or FLOATS[encoding]


def _first(ranked: list[Mask], seen: Tensor | None) -> Mask | None:
    """The native form that is chosen for a mask."""
    if seen is None:
        return None
    m = seen if seen.ndim == 4 else seen[None, None]
    fitting = (mask for mask in ranked if eval(SUFFICES[NATIVE[mask[1]][1]], {"allowed": seen, "m": m}))
    return next(fitting, None)


def _encoded(mask: Mask, indent: str) -> list[str]:
    _, axes, encoding = mask
    return [f"{indent}m = {NATIVE[axes][0]}", *([f"{indent}m = {_code(encoding)}"] if encoding != "allowed" else [])]


def _fillers(both: list[Mask]) -> list[str]:
    """Beside the mask that says something, the other argument too, which blocks nothing."""
    lines = ["        if masks == 'both':"] if both else []
    for mask in both:
        lines.append(" " * 12 + "m = torch.ones(1, 1, 1, S, dtype=torch.bool, device=allowed.device)")
        lines += [*_encoded(mask, " " * 12), f"            given.setdefault({mask[0]!r}, m)"]
    return lines


def _branches(needed: list[Mask]) -> list[str]:
    lines, word = [], "if"
    for mask in needed:
        kind = NATIVE[mask[1]][1]
        lines.append("        else:" if kind == "any" and word == "elif" else f"        {word} {SUFFICES[kind]}:")
        lines += [*_encoded(mask, " " * 12), f"            given[{mask[0]!r}] = m"]
        word = "elif"
    if NATIVE[needed[-1][1]][1] != "any":
        lines += ["        else:", "            raise NotImplementedError('the target takes no mask of these axes')"]
    return lines


def _invocation(form: Form, masks: str) -> list[str]:
    flip, one = TURNED.get(form.layout), "[n]" if form.extra.get("unbatched") else ""
    lines = []
    if flip:
        lines += [
            "    same, tied = query is key, key is value",
            f"    query, key, value = (x.transpose({flip}) for x in (query, key, value))",
            "    key, value = (query if same else key), (query if same else key) if tied else value",
        ]
    given = [f"{form.names[role]}={role}{one}" for role in ("query", "key", "value") if role in form.names]
    if "memory" in form.names:
        optional = "memory" in form.extra.get("optional", ())
        name = form.names["memory"]
        given.append(f"**({{}} if key is query else {{{name!r}: key{one}}})" if optional else f"{name}=key{one}")
    if "weights" in form.names:
        given.append(f"{form.names['weights']}=weights")
    given += [f"{form.flag}=flagged"] if form.flag else []
    given += [f"{name}={text}" for name, text in form.given.items() if name]
    given += [f"{name}=None" for name in _absent(form, masks)]
    call = f"target({', '.join([*given, *([masks] if masks else [])])})"
    if one:
        weights = form.weights or "None"
        return [
            *lines,
            "    outputs, returned = [], []",
            "    for n in range(len(query)):",
            f"        result = {call}",
            f"        outputs.append({form.output})",
            f"        returned.append({weights})",
            f"    return torch.stack(outputs), {'None' if form.weights is None else 'torch.stack(returned)'}",
        ]
    lines.append(f"    result = {call}")
    if form.weights is None and not flip:
        return [*lines, f"    return {form.output}, None"]
    lines.append(f"    output, returned = {form.output}, {form.weights or 'None'}")
    return [*lines, f"    return {f'output.transpose({flip})' if flip else 'output'}, returned"]


def _absent(form: Form, masks: str) -> list[str]:
    """Mask arguments without a default that this call has nothing for."""
    if form.plain is not None or masks == "**given":
        return []
    return [form.names[role] for role in MASK_ROLES if role in form.extra.get("required", ())]


def canonical_masks(form: Form) -> tuple[str, ...]:
    """Which of MASK_AXES the target can be given."""
    said = {axes for _, native, _ in form.masks for axes in CANONICAL[NATIVE[native][1]]} | (
        {"TS"} if form.flag else set()
    )
    return tuple(axes for axes in ("TS", "N11S", "N1TS", "1hTS", "NhTS") if axes in said)
