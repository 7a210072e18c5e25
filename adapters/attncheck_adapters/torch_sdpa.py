"""torch.nn.functional.scaled_dot_product_attention: bool and additive masks, the causal flag, grouped heads, its
backends, and a batch that is handed over jagged or packed into one row.

N batch, h heads, g key/value heads, T queries, S keys
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from attncheck.subject import Refused
from attncheck_adapters import sdpa_call

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

    options: Mapping[str, tuple[Any, ...]] = {
        "mask": ("bool", "additive", "flag"),
        "backend": ("default", "math", "flash"),
        "pack": ("dense", "nested", "packed"),
    }

    def __init__(
        self, heads: int = 4, kv_heads: int | None = None, head_width: int = 6, value_width: int | None = None
    ):
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.conventions = {"mask": "allowed", "fully_masked": "zero", "causal": "top-left", "layout": "heads",
                            "weights": "none", "positions": "none"}  # fmt: skip
        self.widths = (head_width, head_width, value_width or head_width)
        self.sources = ("memory", "separate") if self.widths[1] == self.widths[2] else ("separate",)

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        *,
        mask: str = "bool",
        backend: str = "default",
        pack: str = "dense",
    ) -> tuple[Tensor, None]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nested tensors are a prototype, and why a backend was not used
                return sdpa_call.call(query, key, value, allowed, mask, backend, pack)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise Refused(f"the {backend} backend does not take this call") from error
            raise

    def weights(self) -> dict[str, Tensor]:
        return {}

    def source(self, masks: Sequence[Tensor | None] = ()) -> str:
        return inspect.getsource(sdpa_call)


def make(target: Any = None, **init: Any) -> TorchSDPA:
    return TorchSDPA(**init)
