"""Configs of every sort: what the code reads of one without a class, dicts, nested ones, and optional ones."""

import dataclasses
from typing import Any

import pytest
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Target
from attncheck.settings import Request


def prepared(obj: Any, **options: Any) -> Target:
    return wiring.prepare(Request("m.A", **options), [], obj)


class Attention(nn.Module):
    def build(self, width: int, heads: int, dropout: float = 0.0) -> None:
        self.h = heads
        self.qkv, self.out, self.drop = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        weights = self.drop((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class ReadsAttributes(Attention):
    def __init__(self, config) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        if config.output_attentions:
            raise ValueError
        self.build(config.n_embd, config.n_head, getattr(config, "attn_pdrop", 0.1))


class ReadsItems(Attention):
    def __init__(self, cfg) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.build(cfg["emb_dim"], cfg["n_heads"], cfg.get("drop_rate", 0.1))


class ReadsSections(Attention):
    def __init__(self, cfg) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.build(cfg.model.d_model, cfg.model.attn.n_heads)


BUILT = {
    ReadsAttributes: "SimpleNamespace(output_attentions=False, n_embd=24, n_head=4, attn_pdrop=0.0)",
    ReadsItems: "dict(emb_dim=24, n_heads=4, drop_rate=0.0)",
    ReadsSections: "SimpleNamespace(model=SimpleNamespace(d_model=24, attn=SimpleNamespace(n_heads=4)))",
}


@pytest.mark.parametrize("cls", BUILT)
def test_a_config_without_a_class_is_made_of_what_the_code_reads(cls: Any) -> None:
    target = prepared(cls)
    assert target.error is None
    assert target.built[0].partition("=")[2] == BUILT[cls]
    assert (target.subjects[0].widths[0], target.subjects[0].heads) == (24, 4)


def test_the_user_s_values_go_into_such_a_config() -> None:
    target = prepared(ReadsAttributes, init={"n_embd": 12, "n_head": 3})
    assert (target.subjects[0].widths[0], target.subjects[0].heads) == (12, 3)


@dataclasses.dataclass
class AttnSection:
    num_heads: int = 12
    dropout: float = 0.1


@dataclasses.dataclass
class ModelConfig:
    hidden_size: int = 768
    attention: AttnSection = dataclasses.field(default_factory=AttnSection)


class Nested(Attention):
    def __init__(self, config: ModelConfig, layer_idx: int) -> None:
        super().__init__()
        self.build(config.hidden_size, config.attention.num_heads, config.attention.dropout)


def test_a_nested_config_and_an_argument_beside_it() -> None:
    target = prepared(Nested)
    inner = "attention=AttnSection(num_heads=4, dropout=0.0)"
    assert target.built[0] == f"config=ModelConfig(hidden_size=24, {inner}), layer_idx=0"


def test_what_a_config_lacks_is_said() -> None:
    class Asks(Attention):
        def __init__(self, config) -> None:  # type: ignore[no-untyped-def]
            super().__init__()
            self.build(config.n_embd, config.flavour)

    error = str(prepared(Asks).error)
    assert "no attribute 'flavour'" in error


def test_an_empty_exception_is_shown_with_its_place() -> None:
    class Empty(Attention):
        def __init__(self, d_model: int, n_heads: int) -> None:
            raise AssertionError

    error = str(prepared(Empty).error)
    assert "raised AssertionError at " in error
    assert "test_configs.py:" in error


def test_groups_of_keys_are_tried_where_the_class_has_them() -> None:
    class Grouped(Attention):
        def __init__(self, d_model: int, n_heads: int, n_kv_heads: int | None = None) -> None:
            super().__init__()
            self.build(d_model, n_heads)

    built = prepared(Grouped).built
    assert built[:2] == ["d_model=24, n_heads=4, n_kv_heads=2", "d_model=16, n_heads=4"]


def test_a_keyword_that_the_constructor_does_not_take_is_told_with_the_nearest() -> None:
    error = str(prepared(Nested, init={"n_head": 4}).error)
    assert error.endswith("init has n_head=4, which is no argument of it; did you mean 'num_heads'?")
