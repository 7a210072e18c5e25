"""One module a head, a list of maps for each role, and widths that all differ."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Demand = Callable[[Any], None]
both = pytest.mark.parametrize("bias", [False, True])


@both
@pytest.mark.parametrize("output", [False, True])
def test_one_module_a_head(output: bool, bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    class Head(nn.Module):
        def __init__(self, D: int, d: int) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(D, d, bias=bias) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return attend(self.query(x), self.key(x), self.value(x))

    class A(nn.Module):
        def __init__(self, n_embd: int, n_head: int) -> None:
            super().__init__()
            self.heads = nn.ModuleList(Head(n_embd, n_embd // n_head) for _ in range(n_head))
            self.proj = nn.Linear(n_embd, n_embd) if output else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return self.proj(torch.cat([head(x) for head in self.heads], -1))

    is_read(A)


@both
def test_a_list_of_maps_for_each_role(bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    class A(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            d = dim // num_heads
            self.qs, self.ks, self.vs = (
                nn.ModuleList(nn.Linear(dim, d, bias=bias) for _ in range(num_heads)) for _ in range(3)
            )
            self.out = nn.Linear(dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            parts = [torch.stack([m(x) for m in maps], 1) for maps in (self.qs, self.ks, self.vs)]
            return self.out(attend(*parts).transpose(1, 2).flatten(-2))

    is_read(A)


@both
def test_widths_that_all_differ(bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    """d_k unlike d_v, both unlike D / h, and an output of another width."""

    class A(nn.Module):
        def __init__(self, d_in: int, n_heads: int, d_out: int, d_k: int = 5, d_v: int = 7) -> None:
            super().__init__()
            self.h = n_heads
            self.q, self.k = (nn.Linear(d_in, n_heads * d_k, bias=bias) for _ in range(2))
            self.v, self.o = nn.Linear(d_in, n_heads * d_v, bias=bias), nn.Linear(n_heads * d_v, d_out, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            parts = (m(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
            return self.o(attend(*parts).transpose(1, 2).flatten(-2))

    is_read(A)
