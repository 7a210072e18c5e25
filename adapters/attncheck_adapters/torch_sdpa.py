"""torch.nn.functional.scaled_dot_product_attention: bool and additive masks, the causal flag, grouped heads.

N batch, h heads, g key/value heads, T queries, S keys, d head width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attncheck.masks import additive
from attncheck.subject import Refused

KIND = "kernel"
CONFIGURATIONS = [
    {"heads": 4, "head_width": 6},
    {"heads": 6, "kv_heads": 2, "head_width": 8},
    {"heads": 4, "head_width": 6, "value_width": 10},
]
EXPECTED: list[dict[str, Any]] = []


def handles(target: object) -> bool:
    return target is F.scaled_dot_product_attention


class TorchSDPA:
    """Functional, so that there is no training mode: dropout is what the caller says."""

    options: Mapping[str, tuple[Any, ...]] = {"mask": ("bool", "additive", "flag")}

    def __init__(
        self, heads: int = 4, kv_heads: int | None = None, head_width: int = 6, value_width: int | None = None
    ):
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.conventions = {"mask": "allowed", "fully_masked": "zero", "causal": "top-left", "layout": "heads",
                            "weights": "none", "positions": "none"}  # fmt: skip
        self.widths = (head_width, head_width, value_width or head_width)
        self.sources = ("memory", "separate") if self.widths[1] == self.widths[2] else ("separate",)

    def call(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, mask: str = "bool"
    ) -> tuple[Tensor, None]:
        given: dict[str, Any] = {"enable_gqa": self.heads != self.kv_heads}
        if mask == "flag" and allowed is not None:
            if allowed.ndim != 2 or not torch.equal(allowed, torch.ones_like(allowed).tril()):
                raise Refused("is_causal=True says the causal triangle and no other mask")
            given["is_causal"] = True
        elif allowed is not None:
            given["attn_mask"] = allowed if mask == "bool" else additive.encode(allowed, query.dtype)
        return F.scaled_dot_product_attention(query, key, value, **given), None

    def weights(self) -> dict[str, Tensor]:
        return {}

    def source(self, masks: Sequence[Tensor | None] = ()) -> str:
        return SOURCE.format(gqa=self.heads != self.kv_heads)


SOURCE = """\
import torch.nn.functional as F


def call(query, key, value, allowed, mask="bool"):
    given = {{"enable_gqa": {gqa}}}
    if allowed is not None and mask == "flag":
        given["is_causal"] = True
    elif allowed is not None:
        zero = torch.zeros(allowed.shape, dtype=query.dtype)
        given["attn_mask"] = allowed if mask == "bool" else zero.masked_fill(~allowed, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, **given), None"""


def make(target: Any = None, **init: Any) -> TorchSDPA:
    return TorchSDPA(**init)
