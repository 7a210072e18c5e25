"""torch.nn.MultiheadAttention: both layouts, weights asked for or not, bool and additive masks, kdim and vdim, and
the keys of its own that `add_bias_kv` and `add_zero_attn` append.

N batch, T queries, S keys, h heads, m keys of its own, d head width
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attncheck.masks import additive
from attncheck_adapters.seeded import REDRAW, redraw_degenerate, seeded

KIND = "attention"
CONFIGURATIONS = [
    {"embed_dim": 24, "num_heads": 4, "batch_first": True},
    {"embed_dim": 16, "num_heads": 4},
    {"embed_dim": 24, "num_heads": 4, "kdim": 20, "vdim": 14, "batch_first": True},
]
EXPECTED = [
    {
        "check": "mask.fully-masked",
        "reason": "NaN where weights are asked for and on the fused inference path, zero elsewhere",
        "issue": "https://github.com/pytorch/pytorch/issues/160064",
    },
]
MODULE = nn.MultiheadAttention


def handles(target: object) -> bool:
    return target is MODULE or type(target) is MODULE


class TorchMHA:
    """A padding mask goes to key_padding_mask, everything else to attn_mask; True there means blocked."""

    options: Mapping[str, tuple[Any, ...]] = {
        "weights": (False, True),
        "mask": ("bool", "additive"),
        "masks": ("one", "both"),
    }

    def __init__(self, module: Any, code: str | None, init: Mapping[str, Any] | None = None) -> None:
        self.module, self.code, self.init = module, code, init
        self.heads = module.num_heads
        self.widths = (module.embed_dim, module.kdim, module.vdim)
        layout = "batch-first" if module.batch_first else "seq-first"
        self.conventions = {"mask": "blocked", "padding_mask": "padding", "causal": "no", "layout": layout,
                            "weights": "per-head", "positions": "none"}  # fmt: skip
        self.extra = module.bias_k is not None or module.add_zero_attn
        if self.extra:
            self.conventions["weight_sum"] = "below-one"
        # With keys of its own no row is dead, and its paths agree.
        self.expected = [] if self.extra else EXPECTED

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        *,
        weights: bool = True,
        mask: str = "bool",
        masks: str = "one",
    ) -> tuple[Tensor, Tensor | None]:
        given = {} if allowed is None else self.masks_of(allowed, query, mask)
        N, T, S = query.shape[0], query.shape[1], key.shape[1]
        if given and masks == "both":
            # The argument that has nothing to say is given too, and blocks nothing.
            zeros = torch.zeros(1, dtype=next(iter(given.values())).dtype, device=query.device)
            given = {"attn_mask": zeros.expand(T, S), "key_padding_mask": zeros.expand(N, S), **given}
        if not self.module.batch_first:
            # One object three times stays one object: the module chooses its path by identity.
            turned = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = (turned[id(x)] for x in (query, key, value))
        output, returned = self.module(query, key, value, need_weights=weights, average_attn_weights=False, **given)
        output = output if self.module.batch_first else output.transpose(0, 1)
        return output, None if returned is None else returned[..., :S]

    def masks_of(self, allowed: Tensor, query: Tensor, form: str) -> dict[str, Tensor]:
        blocked = additive.encode(allowed, query.dtype) if form == "additive" else ~allowed
        if allowed.ndim == 2:
            return {"attn_mask": blocked}
        if allowed.shape[1] == allowed.shape[2] == 1:
            return {"key_padding_mask": blocked[:, 0, 0].expand(query.shape[0], -1)}
        full = blocked.expand(query.shape[0], self.heads, query.shape[1], -1)
        return {"attn_mask": full.reshape(-1, *full.shape[-2:])}

    def weights(self) -> dict[str, Tensor]:
        m = self.module
        packed = m.in_proj_weight is not None
        projections = m.in_proj_weight.chunk(3) if packed else (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
        found = {f"{name}.weight": w.detach() for name, w in zip("qkv", projections, strict=True)}
        found["o.weight"] = m.out_proj.weight.detach()
        if m.in_proj_bias is not None:
            found |= {f"{n}.bias": b.detach() for n, b in zip("qkv", m.in_proj_bias.chunk(3), strict=True)}
            found["o.bias"] = m.out_proj.bias.detach()
        return found | self.extra_keys()

    def extra_keys(self) -> dict[str, Tensor]:
        """The keys and values (h,m,d) that every query sees: a learned pair, one of zeros, both, or none."""
        m = self.module
        if not self.extra:
            return {}
        learned = [] if m.bias_k is None else [(m.bias_k.detach(), m.bias_v.detach())]
        zero = m.out_proj.weight.new_zeros(1, 1, m.embed_dim)
        pairs = learned + ([(zero, zero)] if m.add_zero_attn else [])
        k_hmd, v_hmd = (torch.cat(x).view(len(x), self.heads, -1).transpose(0, 1) for x in zip(*pairs, strict=True))
        return {"extra_k": k_hmd, "extra_v": v_hmd}

    def rebuilt(self, seed: int) -> TorchMHA | None:
        """The same built anew; None of an instance."""
        if self.init is None:
            return None
        module = seeded(MODULE, seed=seed, **self.init)
        redraw_degenerate(module)
        return TorchMHA(module, self.code, self.init)

    def undivided(self) -> TorchMHA | None:
        """With a width of 10 for four heads; None of an instance."""
        return None if self.init is None else make(embed_dim=10, num_heads=4, batch_first=True)

    def with_dropout(self, p: float) -> TorchMHA:
        twin = copy.copy(self)
        twin.module = copy.deepcopy(self.module)
        twin.module.dropout = p
        twin.code = None if self.code is None else f"{self.code}\ntarget.dropout = {p}"
        return twin

    @property
    def source(self) -> Any:
        cut = CUT if self.extra else ""
        return None if self.code is None else lambda masks: SOURCE.format(code=self.code, cut=cut)


SOURCE = """\
{code}


def call(query, key, value, allowed, weights=True, mask="bool", masks="one"):
    given, S = {{}}, key.shape[1]
    if allowed is not None:
        if allowed.is_floating_point():
            blocked = allowed.to(query.dtype)  # added to the scores
        elif mask == "additive":
            blocked = torch.zeros(allowed.shape, dtype=query.dtype).masked_fill(~allowed, -torch.inf)
        else:
            blocked = ~allowed  # True means blocked in nn.MultiheadAttention
        if allowed.ndim == 2:
            given["attn_mask"] = blocked
        elif allowed.shape[1] == allowed.shape[2] == 1:
            given["key_padding_mask"] = blocked[:, 0, 0].expand(query.shape[0], -1)
        else:
            full = blocked.expand(query.shape[0], target.num_heads, query.shape[1], -1)
            given["attn_mask"] = full.reshape(-1, *full.shape[-2:])
        if masks == "both":  # the argument that has nothing to say is given too, and blocks nothing
            zeros = torch.zeros(1, dtype=blocked.dtype)
            given.setdefault("attn_mask", zeros.expand(query.shape[1], S))
            given.setdefault("key_padding_mask", zeros.expand(len(query), S))
    same = query is key and key is value
    if not target.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        query, key, value = (query, query, query) if same else (query, key, value)
    output, returned = target(query, key, value, need_weights=weights, average_attn_weights=False, **given)
{cut}    return (output if target.batch_first else output.transpose(0, 1)), returned"""
CUT = "    returned = None if returned is None else returned[..., :S]  # without the keys that it appends\n"


def make(target: Any = MODULE, **init: Any) -> TorchMHA:
    if isinstance(target, nn.Module):
        module, code = copy.deepcopy(target), None
    else:
        module = seeded(target, **init)
        keywords = ", ".join(f"{k}={v!r}" for k, v in init.items())
        code = f"torch.manual_seed(0)\ntarget = torch.nn.MultiheadAttention({keywords})\n{REDRAW}"
    redraw_degenerate(module)
    return TorchMHA(module, code, None if code is None else init)
