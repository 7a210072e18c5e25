"""What a call cannot do without beside tokens: rotary tables, positions, a mask that has to be there.

N batch, T queries, S keys, d features that are rotated, h heads
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attncheck_adapters.infer.form import TABLES, Form
from attncheck_adapters.infer.words import values_of

# Printed above the call that needs it; `a` there are the angles (T,d/2) of this call.
HELPER = """\
def angles(T, d):
    return torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)


"""
# Su et al. 2021, RoFormer, equation 34, as programs keep it: both halves alike, pairs alike, or one of each.
WIDTHS = ("torch.cat((a, a), -1)", "a.repeat_interleave(2, -1)", "a")
PLACES = ("[None]", "", "[None, None]", "[:, None]", "[None, :, None]", "[:, None, None]")
FIXED = {
    "positions": ("torch.arange(T)[None]", "torch.arange(T)", "torch.arange(T)[None].expand(N, T)"),
    "start": ("0",),
    "alibi": (
        "{slopes} * torch.arange(S).to(query.dtype)",
        "({slopes} * torch.arange(S).to(query.dtype)).repeat(N, 1, 1)",
        "({slopes} * torch.arange(S).to(query.dtype))[None]",
        "{slopes} * (torch.arange(S) - torch.arange(T)[:, None]).to(query.dtype)",
    ),
    "residual": ("torch.zeros_like(query)",),
    "nothing": ("None",),
    "no": ("False",),
    "yes": ("True",),
}
ROTATED = re.compile(r"(rot|rope)\w*(dim|ndims|width|n_elem|size)$", re.I)


def angles(T: int, d: int) -> Tensor:
    """Of positions 0 .. T-1, (T,d/2)."""
    return torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)


def candidates(form: Form, target: Any, head_width: int, heads: int) -> Iterator[dict[str, str]]:
    """Ways to give all of them at once, as expressions, the commonest first."""
    wanted: dict[str, str] = form.extra["wanted"]
    # Press et al. 2022, ALiBi, section 3, for a number of heads that is a power of two.
    slopes = f"2.0 ** (-8 / {heads} * torch.arange(1, {heads + 1})).to(query.dtype)[:, None, None]"
    fixed = [
        [(name, text.format(slopes=slopes)) for text in FIXED[role]] for name, role in wanted.items() if role in FIXED
    ]
    tables = [name for name, role in wanted.items() if role in TABLES]
    for d in rotated_widths(target, head_width) if tables else (0,):
        for width, place in itertools.product(WIDTHS, PLACES) if tables else (("", ""),):
            rotated = {name: _table(wanted[name], width, place) for name in tables}
            for choice in itertools.product(*fixed):
                yield {**rotated, **dict(choice), **({"": str(d)} if tables else {})}


def rotated_widths(target: Any, head_width: int) -> list[int]:
    """How many features of a head may be rotated: what the target itself says, or else all, a half, a quarter.

    Empty where it says a number that is no number of pairs: then it needs another width.
    """
    said = [int(v) for n, v in values_of(target, {}).items() if ROTATED.search(n)]
    widths = said or [head_width, head_width // 2, head_width // 4]
    return [d for d in dict.fromkeys(widths) if d >= 2 and d % 2 == 0]


def _table(role: str, width: str, place: str) -> str:
    if role == "complex":
        return f"torch.polar(torch.ones_like(a), a){place}"
    cos, sin = (f"{width}.{name}(){place}.to(query.dtype)" for name in ("cos", "sin"))
    return {"cos": cos, "sin": sin, "tables": f"({cos}, {sin})", "angles": f"{width}{place}"}[role]


def evaluated(form: Form, query: Tensor, key: Tensor, shift: int = 0) -> dict[str, Any]:
    """The values for one call; shift: of all positions, which proper rotations do not show."""
    if not form.given:
        return {}
    N, T, S = len(query), query.shape[-2], key.shape[-2]
    names: dict[str, Any] = {"torch": torch, "query": query, "N": N, "T": T, "S": S}
    if "" in form.given:
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        names["a"] = angles(T + shift, int(form.given[""]))[shift:].to(wide)
    return {name: eval(text, names) for name, text in form.given.items() if name}


def lines(form: Form) -> list[str]:
    """The same as lines of the generated call."""
    if not form.given:
        return []
    found = ["    N, T, S = len(query), query.shape[-2], key.shape[-2]"]
    if "" in form.given:
        wide = "torch.float64 if query.dtype == torch.float64 else torch.float32"
        found.append(f"    a = angles(T, {form.given['']}).to({wide})")
    return found
