"""Projections that are bare parameters: matrices, einsum parameters, and modules of the class's own.

N batch, T tokens, D width, h heads, d head width
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Demand = Callable[[Any], None]
both = pytest.mark.parametrize("bias", [False, True])


@both
@pytest.mark.parametrize("names", ["W_q W_k W_v W_o", "wq wk wv wo", "q_weight k_weight v_weight o_weight"])
def test_bare_matrices(names: str, bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    class A(nn.Module):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__()
            self.h = n_heads
            for name in names.split():
                setattr(self, name, drawn(d_model, d_model))
                if bias:
                    other = "bias".join(name.split("weight")) if "weight" in name else f"b{name[1:]}"
                    setattr(self, other, drawn(d_model))

        def map(self, x: Tensor, i: int) -> Tensor:
            name = names.split()[i]
            other = name.replace("weight", "bias") if "weight" in name else f"b{name[1:]}"
            return x @ getattr(self, name) + (getattr(self, other) if bias else 0)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (self.map(x, i).unflatten(-1, (self.h, -1)).transpose(1, 2) for i in range(3))
            return self.map(attend(q, k, v).transpose(1, 2).flatten(-2), 3)

    is_read(A)


EINSUM = {
    "h D d": ("ntD,hDd->nhtd", (0, 1, 2)), "D h d": ("ntD,Dhd->nhtd", (1, 0, 2)), "h d D": ("ntD,hdD->nhtd", (0, 2, 1)),
}  # fmt: skip


@both
@pytest.mark.parametrize("axes", EINSUM)
def test_einsum_parameters(axes: str, bias: bool, is_read: Demand, attend: Any, drawn: Any) -> None:
    equation, order = EINSUM[axes]

    class A(nn.Module):
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__()
            d = d_model // n_heads
            for role in "qkv":
                full = (n_heads, d_model, d)
                setattr(self, f"w_{role}", drawn(*(full[i] for i in order)))
                setattr(self, f"b_{role}", drawn(n_heads, d) if bias else None)
            self.w_o, self.b_o = drawn(n_heads, d, d_model), drawn(d_model) if bias else None

        def forward(self, x: Tensor) -> Tensor:
            parts = []
            for role in "qkv":
                shift = getattr(self, f"b_{role}")
                y = torch.einsum(equation, x, getattr(self, f"w_{role}"))
                parts.append(y if shift is None else y + shift[:, None])
            mixed = torch.einsum("nhtd,hdD->ntD", attend(*parts), self.w_o)
            return mixed if self.b_o is None else mixed + self.b_o

    is_read(A)


class Conv1D(nn.Module):
    """A map with a weight of (in, out), as in early language models."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf) * 0.3), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def test_fused_map_of_in_out(is_read: Demand, attend: Any, drawn: Any) -> None:
    class A(nn.Module):
        def __init__(self, n_embd: int, n_head: int) -> None:
            super().__init__()
            self.h, self.c_attn, self.c_proj = n_head, Conv1D(3 * n_embd, n_embd), Conv1D(n_embd, n_embd)

        def forward(self, x: Tensor) -> Tensor:
            parts = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
            return self.c_proj(attend(*parts).transpose(1, 2).flatten(-2))

    is_read(A)
