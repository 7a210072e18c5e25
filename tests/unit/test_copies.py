"""Copies of a subject in another dtype or with dropout: the original stays as it is, whatever its module keeps."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.copies import copied, copied_module
from attncheck.subject import Answer, Case, Subject, subject_of

CASE = Case("self", 2, 3, 3)


class Keeping(nn.Module):
    """Keeps the results of its last call, as code does that plots attention."""

    def __init__(self, where: str = "attribute") -> None:
        super().__init__()
        self.linear, self.drop, self.where = nn.Linear(4, 4), nn.Dropout(0.0), where
        self.kept: Any = None
        self.register_buffer("last", None)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        if self.where == "buffer":
            self.last = y
        self.kept = {"attribute": y, "list": [y], "dict": {"y": [y, 1]}, "tuple": (y, "a"), "buffer": None}[self.where]
        return self.drop(y)  # type: ignore[no-any-return]


class Adapter:
    width = 4

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        return self.module(query), None


def subject(where: str = "attribute") -> Subject:
    torch.manual_seed(0)
    return subject_of(Adapter(Keeping(where)), "attention")


def answer(s: Subject, mode: str = "eval") -> Tensor:
    case = CASE.but(mode=mode)
    given = s.attempt(s.draw(case), None, case)
    assert isinstance(given, Answer), given
    return given.out


WHERE = ("attribute", "list", "dict", "tuple", "buffer")


@pytest.mark.parametrize("where", WHERE)
def test_a_module_that_keeps_a_tensor_with_its_graph_is_copied(where: str) -> None:
    s = subject(where)
    before = answer(s)
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(s.module)
    assert torch.allclose(answer(s.at(torch.float64)), before.double(), atol=1e-5)
    assert copied_module(s.module) is not s.module
    assert copied(s.adapter).module is not s.adapter.module
    assert torch.equal(answer(s), before)


def test_another_dtype_is_a_copy() -> None:
    s = subject()
    before = answer(s)
    half = s.at(torch.bfloat16)
    assert answer(half).dtype == torch.bfloat16
    assert {p.dtype for p in s.module.parameters()} == {torch.float32}
    assert torch.equal(answer(s), before)
    assert (half.dtype, s.dtype) == (torch.bfloat16, torch.float32)
    assert s.at(torch.bfloat16) is half
    assert half.setup == ("target.to(torch.bfloat16)",)


def test_dropout_is_set_on_a_copy() -> None:
    s = subject()
    before = answer(s)
    dropping = s.with_dropout(0.5)
    assert dropping is not None
    assert not torch.equal(answer(dropping, "train"), before)
    assert torch.equal(answer(dropping), before)
    assert torch.equal(answer(s, "train"), before)
    assert s.module.drop.p == 0.0
    assert s.with_dropout(0.5) is dropping


def test_the_setup_of_a_copy_makes_it_again() -> None:
    made = subject().at(torch.float64).with_dropout(0.25)
    target = Keeping()
    exec("\n".join(made.setup), {"torch": torch, "target": target})
    assert (target.drop.p, target.linear.weight.dtype) == (0.25, torch.float64)


def test_a_module_without_dropout_has_no_dropping_copy() -> None:
    assert subject_of(Adapter(nn.Linear(4, 4)), "attention").with_dropout(0.5) is None


def test_the_adapter_s_own_way_to_drop_comes_first() -> None:
    class Own(Adapter):
        def with_dropout(self, p: float) -> "Own":
            twin = Own(nn.Linear(4, 4))
            twin.rate = p
            return twin

    dropping = subject_of(Own(nn.Linear(4, 4)), "attention").with_dropout(0.5)
    assert dropping.adapter.rate == 0.5
