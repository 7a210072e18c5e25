"""attncheck_reference: the oracle, and with a step replaced, the faults.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from attncheck.compare import Inapplicable
from attncheck.inputs import Inputs
from attncheck.masks import additive
from attncheck.subject import Refused
from attncheck_adapters.seeded import seeded
from attncheck_reference import DotProductAttention, MultiHeadAttention, Rotary

Outputs = tuple[Tensor, Tensor | None]
KIND = "attention"
CONFIGURATIONS = [{"width": 24, "heads": 4}, {"width": 16, "heads": 4}, {"width": 8, "heads": 1}]
# By kind: the class, and two configurations in which faults are tried.
CLASSES: dict[str, tuple[type[DotProductAttention], list[dict[str, int]]]] = {
    "attention": (MultiHeadAttention, CONFIGURATIONS[:2]),
    "kernel": (DotProductAttention, [{"heads": 4, "head_width": 6}, {"heads": 6, "head_width": 8}]),
}
EXPECTED: list[dict[str, Any]] = []
# Keywords of what an attention may have beside the plain one.
PARTS = (
    "rotary", "qk_norm", "qk_norm_over", "qk_norm_first", "qk_norm_eps", "position_bias", "sink", "gate", "scale",
    "pre_norm", "pre_norm_memory", "residual", "post_norm", "norm_eps",
)  # fmt: skip


def handles(target: object) -> bool:
    return isinstance(target, type) and issubclass(target, DotProductAttention)


class Reference:
    """The reference under the canonical form; weights and additive masks are asked for by option."""

    options: Mapping[str, tuple[Any, ...]] = {"weights": (False, True), "mask": ("bool", "additive")}

    again: Callable[[], Reference] | None = None  # makes the same with the weights that it was given

    def __init__(self, module: DotProductAttention, init: Mapping[str, Any]) -> None:
        self.module, self.init = module, dict(init)
        self.dtype = torch.float32
        self.heads, self.kv_heads = module.heads, module.kv_heads
        if isinstance(module, MultiHeadAttention):
            self.widths = tuple(linear.in_features for linear in (module.q, module.k, module.v))
        else:
            self.widths = (init.get("head_width", 6),) * 3
        causal = module.corner if module.causal else "no"
        window = "none" if module.window is None else f"{module.window[0]}:{module.window[1]}"
        policy = {"refuse": "raise"}.get(module.dead_rows, module.dead_rows)
        self.conventions = {"mask": "allowed", "causal": causal, "window": window, "fully_masked": policy,
                            "layout": "batch-first", "weights": "per-head", "positions": "none"}  # fmt: skip
        if module.extra_keys:
            # Its own rule for dead rows never applies, since the extra keys remain.
            self.conventions |= {"weight_sum": "below-one", "fully_masked": "undefined"}
        self.conventions |= conventions_of_parts(module, self.conventions)

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        *,
        weights: bool = True,
        mask: str = "bool",
    ) -> tuple[Tensor, Tensor | None]:
        if allowed is not None and (mask == "additive" or allowed.is_floating_point()):
            bias = additive.encode(allowed, query.dtype)
            return cast("Outputs", self.module(query, key, value, None, bias, weights))
        return cast("Outputs", self.module(query, key, value, allowed, None, weights))

    def weights(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.module.named_parameters()}

    @property
    def parts(self) -> dict[str, Any]:
        """The keywords that `shared` needs beside the weights, so that it gives the same."""
        return {k: v for k, v in self.init.items() if k in PARTS}

    @property
    def factor(self) -> float:
        """What its scores are multiplied by; where heads have one each, the largest in size."""
        d = (
            self.module.q.weight.shape[0] // self.heads
            if isinstance(self.module, MultiHeadAttention)
            else self.widths[0]
        )
        factor = self.module.factor
        if isinstance(factor, Tensor):
            return float(factor.abs().max())
        return d**-0.5 if factor is None else factor

    @property
    def one_factor(self) -> bool:
        """Whether log-weights are the scores times one number, up to a constant of each query."""
        return self.module.position_bias is None and not isinstance(self.module.factor, Tensor)

    @property
    def ends_linear(self) -> bool:
        """Whether no norm stands behind the output."""
        return not isinstance(self.module, MultiHeadAttention) or isinstance(self.module.post_norm, nn.Identity)

    def scores(self, inputs: Inputs) -> Tensor:
        """Unscaled scores (N,h,T,S) of inputs (N,T,Dq) and (N,S,Dk), or of heads; without biases of positions."""
        m = self.module
        with torch.no_grad():
            if not isinstance(m, MultiHeadAttention):
                return m.score(inputs.query, m.spread(inputs.key))
            q_NhTd, k_NgSd, _ = m.heads_of(*m.enter(*inputs.tensors()))
            return m.score(q_NhTd, m.spread(k_NgSd))

    def output_of(self, inputs: Inputs, weights_NhTS: Tensor) -> Tensor:
        """The output if these were its weights of the keys given."""
        m = cast(MultiHeadAttention, self.module)
        with torch.no_grad():
            entered = m.enter(*inputs.tensors())
            mixed_NhTe = m.mix(weights_NhTS, m.spread(m.heads_of(*entered)[2]))
            return m.leave(m.output(m.gated(m.merge(mixed_NhTe), entered[0])), inputs.query)

    def contributions(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """What each key of each head adds to the output at weight 1 (N,h,S,Do), and the output without any (Do)."""
        m = cast(MultiHeadAttention, self.module)
        around = [n for n in ("pre_norm", "post_norm") if not isinstance(getattr(m, n), nn.Identity)]
        around += ["residual"] * m.residual + ["gate"] * (m.gate is not None)
        if around:
            raise Inapplicable(f"the output is no sum over values alone, but has {', '.join(around)}")
        with torch.no_grad():
            v_NhSe = m.spread(m.split(m.v(value), m.kv_heads))
            alone_NhShe = torch.diag_embed(v_NhSe.transpose(1, -1)).permute(0, 3, 2, 4, 1)
            bias = m.output(torch.zeros(self.heads * v_NhSe.shape[-1], dtype=value.dtype))
            return m.output(alone_NhShe.flatten(-2)) - bias, bias

    def rebuilt(self, seed: int) -> Reference:
        """The same, built anew; with given weights where it has them."""
        if self.again is not None:
            made = self.again()
            with torch.no_grad():
                for parameter in made.module.parameters() if seed else ():
                    parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
            return made
        init = {k: v for k, v in self.init.items() if k != "head_width" or isinstance(self.module, MultiHeadAttention)}
        return Reference(seeded(type(self.module), seed=seed, **own(init)), self.init)

    def undivided(self) -> Reference | None:
        """Built with a width of 10 for four heads; None for a kernel, which has no width."""
        if not isinstance(self.module, MultiHeadAttention):
            return None
        return make(type(self.module), width=10, heads=4)

    def with_dropout(self, p: float) -> Reference:
        twin = copy.copy(self)
        twin.module = copy.deepcopy(self.module)
        twin.module.drop.p = p
        twin.init = {**self.init, "dropout": p}
        return twin

    def source(self, masks: Sequence[Tensor | None] = ()) -> str:
        init = ", ".join(f"{k}={v!r}" for k, v in self.init.items())
        return "\n".join([
            *self._import(), "", "torch.manual_seed(0)", f"target = Target({init})", "", "",
            "def call(query, key, value, allowed, weights=True, mask='bool'):",
            "    if mask == 'additive' and allowed is not None:",
            "        zero = torch.zeros(allowed.shape, dtype=query.dtype)",
            "        bias = zero + allowed if allowed.is_floating_point() else zero.masked_fill(~allowed, -torch.inf)",
            "        return target(query, key, value, None, bias, weights)",
            "    return target(query, key, value, allowed, None, weights)",
        ])  # fmt: skip

    def _import(self) -> list[str]:
        cls = type(self.module)
        fault = getattr(cls, "fault", None)
        parts = ["from attncheck_reference import Rotary"] if isinstance(self.init.get("rotary"), Rotary) else []
        if fault is None:
            return [*parts, f"from {cls.__module__} import {cls.__qualname__} as Target"]
        return ["from attncheck_faults import faults", *parts, "", f"Target = faults()[{fault!r}].broken()"]


def conventions_of_parts(module: DotProductAttention, said: Mapping[str, str]) -> dict[str, str]:
    """What the parts change of the conventions of a plain attention."""
    found, dead = {}, said["fully_masked"]
    if module.sink is not None:
        dead = dead if module.extra_keys else "zero"  # the sink takes all
        found["weight_sum"] = "below-one"
    if module.position_bias is not None or getattr(module, "rotary", None) is not None:
        found["positions"] = "relative"
    residual, gate = getattr(module, "residual", False), getattr(module, "gate", None)
    if (dead in ("zero", "uniform") and residual) or (dead == "uniform" and gate is not None):
        dead = "undefined"  # the output follows the query too
    return found | {"fully_masked": dead}


def make(target: type[DotProductAttention] = MultiHeadAttention, **init: Any) -> Reference:
    if issubclass(target, MultiHeadAttention):
        return Reference(seeded(target, **own(init)), init)
    head_width = init.pop("head_width", 6)
    module = seeded(target, **own(init))
    return Reference(module, {**init, "head_width": head_width})


def own(init: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords with copies of modules among them, so that what is built does not share its parameters."""
    return {k: copy.deepcopy(v) if isinstance(v, nn.Module) else v for k, v in init.items()}


def shared(
    weights: Mapping[str, Tensor],
    heads: int,
    kv_heads: int,
    target: type[DotProductAttention] | None = None,
    **attention: Any,
) -> Reference:
    """The reference in float64 with a target's own projections (h*d, D); without any, the kernel.

    weights: q.weight, k.weight, v.weight, o.weight and their biases, extra_k and extra_v (g,m,d) of keys that every
    query sees; the parameters of parts under their names, as q_norm.weight, sink, gate.weight, position_bias.table.
    What is missing is left out of the reference: 0, 1 as the weight of a norm, and in a bias of positions as it is.
    attention: other keywords of the class, the parts among them; a sink is taken from the weights.
    """
    again = partial(shared, weights, heads, kv_heads, target, **attention)
    parts = {k: v for k, v in attention.items() if k in PARTS}
    if not weights or (target is not None and not issubclass(target, MultiHeadAttention)):
        made = {"sink": "sink" in weights} | own(attention)
        kernel = _loaded((target or DotProductAttention)(heads, kv_heads, **made), weights)
        return _plain(Reference(kernel, parts), again)
    q, k, v, o = (weights.get(f"{name}.weight") for name in "qkvo")
    if q is None or k is None or v is None:
        raise Refused(f"weights={sorted(weights)}: expected q.weight, k.weight and v.weight")
    init: dict[str, Any] = {
        "width": q.shape[1], "heads": heads, "kv_heads": kv_heads, "key_width": k.shape[1], "value_width": v.shape[1],
        "head_width": q.shape[0] // heads, "value_head_width": v.shape[0] // kv_heads, "output": o is not None,
        "out_width": None if o is None else o.shape[0],
        "extra_keys": weights["extra_k"].shape[1] if "extra_k" in weights else 0, "sink": "sink" in weights,
    }  # fmt: skip
    module = _loaded((target or MultiHeadAttention)(**init | own(attention)), weights)
    return _plain(Reference(module, init | parts), again)


def _loaded(module: DotProductAttention, weights: Mapping[str, Tensor]) -> DotProductAttention:
    """In float64, with parameters and buffers found under their names; what is missing becomes what adds nothing."""
    module.double()
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name in weights:
                tensor.copy_(weights[name])
            elif isinstance(tensor, nn.Parameter) and "norm." not in name and not name.startswith("position_bias."):
                tensor.zero_()  # norms are built as 1 and 0, and a bias of positions as the caller has it
    return module


def _plain(reference: Reference, again: Callable[[], Reference]) -> Reference:
    reference.again = again
    reference.options = {}
    reference.module.eval()
    reference.dtype = torch.float64
    return reference
