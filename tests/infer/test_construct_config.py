"""A class that takes a config: it is found by its annotation, beside the class, or where the user says."""

import dataclasses
import inspect
from typing import Any

import pytest
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Target
from attncheck.settings import Request
from attncheck_adapters.infer.construct import build


def prepared(obj: Any, **options: Any) -> Target:
    return wiring.prepare(Request("m.A", **options), [], obj)


class Attention(nn.Module):
    """Takes its sizes from a subclass's constructor."""

    def __init__(self, width: int, heads: int, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.out, self.n = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width), heads
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.n, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        weights = self.drop((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


@dataclasses.dataclass
class AConfig:
    n_embd: int = 768
    n_head: int = 12
    dropout: float = 0.1
    block_size: int = 1024
    vocab_size: int = 50257


class ByAnnotation(Attention):
    def __init__(self, settings: AConfig) -> None:
        super().__init__(settings.n_embd, settings.n_head, True, settings.dropout)


class ByTextAlone(Attention):
    """As under `from __future__ import annotations`."""

    def __init__(self, settings: "AConfig") -> None:
        super().__init__(settings.n_embd, settings.n_head, True, settings.dropout)


class ByNameAlone(Attention):
    def __init__(self, config) -> None:  # type: ignore[no-untyped-def]
        super().__init__(config.n_embd, config.n_head, True, config.dropout)


class ByText(Attention):
    def __init__(self, cfg: "AConfig") -> None:
        super().__init__(cfg.n_embd, cfg.n_head, True, cfg.dropout)


@pytest.mark.parametrize("cls", [ByAnnotation, ByNameAlone, ByText, ByTextAlone])
def test_a_config_is_found_by_its_annotation_or_beside_the_class(cls: Any) -> None:
    target = prepared(cls)
    assert target.error is None
    name = next(iter(inspect.signature(cls).parameters))
    assert target.built[0] == f"{name}=AConfig(n_embd=24, n_head=4, dropout=0.0, block_size=64)"
    assert target.subjects[0].heads == 4
    typed = prepared(cls, init={"n_embd": 12, "n_head": 3})
    assert [(s.widths[0], s.heads) for s in typed.subjects] == [(12, 3)]


def test_a_config_given_by_the_user_comes_first() -> None:
    other = dataclasses.make_dataclass("Other", [("n_embd", int, 8), ("n_head", int, 2), ("dropout", float, 0.0)])
    (_, first), *_ = build(ByNameAlone, {"n_head": 3}, other)
    assert (first.qkv.in_features, first.n) == (24, 3)
