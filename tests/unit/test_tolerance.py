"""The bound without an oracle: it follows the dtype and the target, and stays far below what a fault does."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.compare import tolerance
from attncheck.subject import Answer, Case, Subject, subject_of

CASE = Case("separate", 2, 3, 4, seed=3)


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v, None


def bound_of(call: Any, dtype: torch.dtype) -> float:
    subject: Subject = subject_of(SimpleNamespace(width=6, call=call, dtype=dtype), "attention")
    answer = subject.attempt(subject.draw(CASE), None, CASE)
    assert isinstance(answer, Answer)
    return tolerance(answer)


def test_it_grows_with_the_dtype() -> None:
    bounds = [bound_of(attend, d) for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)]
    eps = [torch.finfo(d).eps for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)]
    assert bounds == sorted(bounds)
    assert all(16 * e < bound < 2000 * e for bound, e in zip(bounds, eps, strict=True))


def test_it_grows_where_the_target_is_sensitive() -> None:
    def steep(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        return (1000 * q).sin(), None

    assert bound_of(steep, torch.float32) > 1000 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_it_grows_with_the_output(size: float) -> None:
    def scaled(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        return attend(q, k, v * size, allowed)

    assert bound_of(scaled, torch.float32) == pytest.approx(size * bound_of(attend, torch.float32), rel=0.5)


def test_a_target_that_refuses_the_second_call_has_the_floor() -> None:
    calls = []

    def once(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        calls.append(q)
        if len(calls) > 1:
            raise RuntimeError("again")
        return torch.full_like(q, 2.0), None

    assert bound_of(once, torch.float32) == 64 * torch.finfo(torch.float32).eps * 2.0
