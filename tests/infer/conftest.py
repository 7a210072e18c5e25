"""What the tests of inference share: an attention that says nothing of how it is called, and judgements of targets."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Target, run
from attncheck.registry import checks_of
from attncheck.settings import Request


class Core(nn.Module):
    """Four maps and the computation; a subclass gives the call."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def core(self, x: Tensor, y: Tensor, change: Callable[[Tensor], Tensor] = lambda s: s) -> tuple[Tensor, Tensor]:
        """Output and weights; `change` masks the scores (N,h,T,S)."""
        q, k, v = (m(z).unflatten(-1, (self.h, -1)).transpose(1, 2) for m, z in ((self.q, x), (self.k, y), (self.v, y)))
        weights = change(q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(-2)), weights


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny calls stall on more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def core() -> type[Core]:
    return Core


@pytest.fixture
def prepared() -> Callable[..., Target]:
    """Meets an object as a target; keywords are declarations."""

    def prepare(obj: Any, **declare: str) -> Target:
        target = wiring.prepare(Request("m.A", declare=declare), [], obj)
        assert target.error is None, target.error
        return target

    return prepare


@pytest.fixture
def passes() -> Callable[..., None]:
    """Demands that checks pass on a target."""
    checks = {check.id: check for check in checks_of("attention")}

    def demand(target: Target, *ids: str, profile: str = "quick") -> None:
        for id in ids:
            result = run(checks[id], target, profile)
            assert result.status == "passed", result

    return demand


@pytest.fixture
def is_read(prepared: Callable[..., Target], passes: Callable[..., None]) -> Callable[[Any], None]:
    """Demands that the parameters are understood in every configuration, and that the oracle agrees."""

    def demand(obj: Any) -> None:
        target = prepared(obj)
        assert None not in target.oracles
        passes(target, "numeric.oracle", profile="default")

    return demand


@pytest.fixture
def attend() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """softmax(q k^T / sqrt(d)) v of (N,h,T,d)."""
    return lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.fixture
def drawn() -> Callable[..., nn.Parameter]:
    return lambda *shape: nn.Parameter(torch.randn(shape) * 0.3)
