"""Maps that are joined, shared or ordered in rarer ways.

N batch, T tokens, D width, h heads, g key/value heads, d head width
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Demand = Callable[[Any], None]
both = pytest.mark.parametrize("bias", [False, True])


@both
def test_an_output_for_each_head(bias: bool, is_read: Demand, attend: Any) -> None:
    """Their biases add up."""

    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.h, self.qkv = num_heads, nn.Linear(dim, 3 * dim)
            self.outs = nn.ModuleList(nn.Linear(dim // num_heads, dim, bias=bias) for _ in range(num_heads))

        def forward(self, x: Tensor) -> Tensor:
            parts = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            return torch.stack([out(y) for out, y in zip(self.outs, attend(*parts).unbind(1), strict=True)]).sum(0)

    is_read(A)


@both
def test_a_fused_map_for_each_group(bias: bool, is_read: Demand, attend: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int, num_kv_heads: int) -> None:
            super().__init__()
            self.r, self.d = num_heads // num_kv_heads, dim // num_heads
            width = (self.r + 2) * self.d
            self.groups = nn.ModuleList(nn.Linear(dim, width, bias=bias) for _ in range(num_kv_heads))
            self.proj = nn.Linear(dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            parts = [group(x).unflatten(-1, (-1, self.d)).transpose(1, 2) for group in self.groups]
            mixed = [attend(*y.split([self.r, 1, 1], 1)) for y in parts]
            return self.proj(torch.cat(mixed, 1).transpose(1, 2).flatten(2))

    is_read(A)


@both
def test_einsum_parameters_of_grouped_heads(bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int, num_kv_heads: int) -> None:
            super().__init__()
            self.r, d = num_heads // num_kv_heads, dim // num_heads
            for role, n in zip("qkv", (num_heads, num_kv_heads, num_kv_heads), strict=True):
                setattr(self, f"{role}_weight", drawn(n, dim, d))
                setattr(self, f"{role}_bias", drawn(n, d) if bias else None)
            self.o_proj_weight, self.o_proj_bias = drawn(num_heads, d, dim), drawn(dim)

        def project(self, x: Tensor, role: str) -> Tensor:
            y, shift = torch.einsum("ntD,hDd->nhtd", x, getattr(self, f"{role}_weight")), getattr(self, f"{role}_bias")
            y = y if shift is None else y + shift[:, None]
            return y if role == "q" else y.repeat_interleave(self.r, 1)

        def forward(self, x: Tensor) -> Tensor:
            mixed = attend(*(self.project(x, role) for role in "qkv"))
            return torch.einsum("nhtd,hdD->ntD", mixed, self.o_proj_weight) + self.o_proj_bias

    is_read(A)


@both
def test_linear_inputs_and_an_output_of_in_out(bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.h = num_heads
            self.w_q, self.w_k, self.w_v = (nn.Linear(dim, dim, bias=bias) for _ in range(3))
            self.w_o_weight, self.w_o_bias = drawn(dim, dim), drawn(dim)

        def forward(self, x: Tensor) -> Tensor:
            parts = (m(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for m in (self.w_q, self.w_k, self.w_v))
            return attend(*parts).transpose(1, 2).flatten(2) @ self.w_o_weight + self.w_o_bias

    is_read(A)


@both
@pytest.mark.parametrize("output", [False, True])
def test_keys_that_are_the_values_too(output: bool, bias: bool, is_read: Demand, attend: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.h, self.q, self.kv = num_heads, nn.Linear(dim, dim, bias=bias), nn.Linear(dim, dim, bias=bias)
            self.out = nn.Linear(dim, dim) if output else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            q, kv = (m(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for m in (self.q, self.kv))
            return self.out(attend(q, kv, kv).transpose(1, 2).flatten(2))

    is_read(A)


@both
def test_heads_innermost_without_an_output(bias: bool, is_read: Demand, attend: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.h, self.qkv = num_heads, nn.Linear(dim, 3 * dim, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            parts = (y.unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2) for y in self.qkv(x).chunk(3, -1))
            return attend(*parts).permute(0, 2, 3, 1).flatten(2)

    is_read(A)
