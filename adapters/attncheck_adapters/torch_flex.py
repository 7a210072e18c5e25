"""torch.nn.attention.flex_attention.flex_attention: the mask as a block mask or as a change of scores, grouped heads.

N batch, h heads, T queries, S keys, e head width of values
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor

from attncheck.subject import Refused

KIND = "kernel"
CONFIGURATIONS = [{"heads": 4, "head_width": 6}, {"heads": 6, "kv_heads": 2, "head_width": 8, "value_width": 10}]
EXPECTED: list[dict[str, Any]] = []


def handles(target: object) -> bool:
    return target is flex.flex_attention


class TorchFlex:
    """Called without torch.compile. Functional, so that there is no training mode; it has no dropout."""

    options: Mapping[str, tuple[Any, ...]] = {"mask": ("block", "score")}

    def __init__(
        self, heads: int = 4, kv_heads: int | None = None, head_width: int = 6, value_width: int | None = None
    ):
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.conventions = {"mask": "allowed", "fully_masked": "zero", "layout": "heads", "causal": "no",
                            "weights": "none", "positions": "none"}  # fmt: skip
        self.widths = (head_width, head_width, value_width or head_width)
        self.sources = ("memory", "separate") if self.widths[1] == self.widths[2] else ("separate",)

    def call(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, mask: str = "block"
    ) -> tuple[Tensor, None]:
        if any(x.requires_grad for x in (query, key, value)):
            raise Refused("flex_attention without torch.compile has no backward pass")
        return call(query, key, value, allowed, mask)

    def weights(self) -> dict[str, Tensor]:
        return {}

    def source(self, masks: Sequence[Tensor | None] = ()) -> str:
        return "\n\n".join([IMPORTS, *(inspect.getsource(part) for part in (lookup, hiding, call))])


def call(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, mask: str = "block") -> tuple[Tensor, None]:
    """(N,h,T,e), and no weights."""
    N, h, T, _ = query.shape
    sees = None if allowed is None else lookup(allowed.expand(N, h, T, key.shape[2]))
    block = flex.create_block_mask(sees, N, h, T, key.shape[2], query.device) if sees and mask == "block" else None
    change = hiding(sees) if sees and mask == "score" else None
    # Its own switch for debugging runs the same steps untraced; tracing takes 0.3 s for each new shape.
    usual, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, True
    try:
        return flex.flex_attention(query, key, value, change, block, enable_gqa=h != key.shape[1]), None
    finally:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = usual


def lookup(allowed_NhTS: Tensor) -> Callable[..., Tensor]:
    """allowed[n, head, t, s] as a `mask_mod`; written so, three times as fast as with four indices."""
    _, h, T, S = allowed_NhTS.shape
    flat = allowed_NhTS.flatten()
    return lambda n, head, t, s: flat.index_select(0, (((n * h + head) * T + t) * S + s).view(1)).view(())


def hiding(sees: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same as a `score_mod`."""
    return lambda score, *place: torch.where(sees(*place), score, -torch.inf)


IMPORTS = """\
from collections.abc import Callable
import torch.nn.attention.flex_attention as flex
from torch import Tensor"""


def make(target: Any = None, **init: Any) -> TorchFlex:
    return TorchFlex(**init)
