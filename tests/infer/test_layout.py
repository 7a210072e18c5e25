"""Arrangements of the parameters: for each the oracle is found, and the target agrees with it.

N batch, T tokens, D width, h heads, g key/value heads, d head width
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.engine import Target, run
from attncheck.registry import checks_of

Demand = Callable[[Any], None]
both = pytest.mark.parametrize("bias", [False, True])


class Attention(nn.Module):
    """All but the projections; `project` gives (N,T,h,d) three times, `output` takes (N,T,h,d)."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.D, self.h, self.d = d_model, n_heads, d_model // n_heads

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (y.transpose(1, 2) for y in self.project(x))
        k, v = (y.repeat_interleave(self.h // y.shape[1], 1) for y in (k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return self.output((scores.softmax(-1) @ v).transpose(1, 2))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.d))

    def project(self, x: Tensor) -> Any:
        raise NotImplementedError

    def output(self, mixed: Tensor) -> Tensor:
        return mixed.flatten(-2)


NAMES = [("q_proj", "k_proj", "v_proj", "out_proj"), ("W_Q", "W_K", "W_V", "W_O"), ("query", "key", "value", "dense"),
         ("theta", "phi", "g", "w"), ("value", "query", "key", "proj"), ("a", "b", "c", None)]  # fmt: skip


@both
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_separate_maps_of_any_name(names: tuple[str, ...], bias: bool, is_read: Demand) -> None:
    class A(Attention):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__(d_model, n_heads)
            for name in sorted(filter(None, names)):
                setattr(self, name, nn.Linear(d_model, d_model, bias=bias))

        def project(self, x: Tensor) -> Any:
            return [self.heads(getattr(self, name)(x)) for name in names[:3]]

        def output(self, mixed: Tensor) -> Tensor:
            flat = mixed.flatten(-2)
            return flat if names[3] is None else getattr(self, names[3])(flat)

    is_read(A)


CUTS = {
    "q k v": lambda y, h: y.chunk(3, -1),
    "k q v": lambda y, h: [y.chunk(3, -1)[i] for i in (1, 0, 2)],
    "v k q": lambda y, h: [y.chunk(3, -1)[i] for i in (2, 1, 0)],
    "h 3 d": lambda y, h: [x.flatten(-2) for x in y.unflatten(-1, (h, 3, -1)).unbind(-2)],
    "h d 3": lambda y, h: [x.flatten(-2) for x in y.unflatten(-1, (h, -1, 3)).unbind(-1)],
    "d 3 h": lambda y, h: [x.mT.flatten(-2) for x in y.unflatten(-1, (-1, 3, h)).unbind(-2)],
}


@both
@pytest.mark.parametrize("cut", CUTS)
def test_one_fused_map(cut: str, bias: bool, is_read: Demand) -> None:
    class A(Attention):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__(d_model, n_heads)
            self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
            self.proj = nn.Linear(d_model, d_model, bias=bias)

        def project(self, x: Tensor) -> Any:
            return [self.heads(y) for y in CUTS[cut](self.qkv(x), self.h)]

        def output(self, mixed: Tensor) -> Tensor:
            return self.proj(mixed.flatten(-2))

    is_read(A)


@both
@pytest.mark.parametrize("first", ["k", "v", "per head"])
def test_keys_and_values_fused(first: str, bias: bool, is_read: Demand) -> None:
    class A(Attention):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__(d_model, n_heads)
            self.to_q, self.to_kv = nn.Linear(d_model, d_model, bias=bias), nn.Linear(d_model, 2 * d_model, bias=bias)
            self.to_out = nn.Linear(d_model, d_model)

        def project(self, x: Tensor) -> Any:
            y = self.to_kv(x)
            k, v = y.unflatten(-1, (self.h, 2, -1)).unbind(-2)
            if first != "per head":
                k, v = map(self.heads, y.chunk(2, -1))
            return self.heads(self.to_q(x)), *((v, k) if first == "v" else (k, v))

        def output(self, mixed: Tensor) -> Tensor:
            return self.to_out(mixed.flatten(-2))

    is_read(A)


@both
@pytest.mark.parametrize("fused", ["qkv", "per group", "kv", "separate"])
@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_heads(groups: int, fused: str, bias: bool, is_read: Demand) -> None:
    class A(Attention):
        def __init__(self, d_model: int, n_heads: int, n_kv_heads: int = 2) -> None:
            super().__init__(d_model, n_heads)
            q, kv = d_model, groups * self.d
            widths = {"qkv": [q + 2 * kv], "per group": [q + 2 * kv], "kv": [q, 2 * kv], "separate": [q, kv, kv]}[fused]
            self.maps = nn.ModuleList(nn.Linear(d_model, width, bias=bias) for width in widths)
            self.wo, self.widths = nn.Linear(d_model, d_model, bias=False), [q, kv, kv]

        def project(self, x: Tensor) -> Any:
            y = torch.cat([m(x) for m in self.maps], -1)
            if fused == "per group":
                r = self.h // groups
                return [part.flatten(-3, -2) for part in y.unflatten(-1, (groups, r + 2, -1)).split([r, 1, 1], -2)]
            return map(self.heads, y.split(self.widths, -1))

        def output(self, mixed: Tensor) -> Tensor:
            return self.wo(mixed.flatten(-2))

    is_read(A)


def test_what_has_no_reading_has_no_oracle(prepared: Callable[..., Target]) -> None:
    class A(Attention):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__(d_model, n_heads)
            self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

        def project(self, x: Tensor) -> Any:
            return self.heads(self.q(x).relu()), self.heads(self.k(x)), self.heads(self.v(x))

    target = prepared(A)
    assert target.oracles == [None, None, None]
    result = run(next(check for check in checks_of("attention") if check.id == "numeric.oracle"), target)
    assert result.status == "inapplicable"
    assert "no reading of its weights" in str(result.reason)
