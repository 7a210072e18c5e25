"""Building a class from the names of its arguments, or from what the user typed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Target
from attncheck.settings import Request
from attncheck.spec import BadTarget
from attncheck_adapters.infer.construct import SIZES, build, plan


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


SPELLINGS = ["d_model nhead", "embed_dim num_heads", "dim heads", "hidden_size num_attention_heads", "n_embd n_head",
             "d h", "D H", "model_dim num_head", "emb_dim n_heads", "num_hiddens num_heads"]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_constructor_spellings(spelling: str) -> None:
    width, heads = spelling.split()
    namespace: dict[str, Any] = {"Attention": Attention}
    exec(f"class A(Attention):\n def __init__(self, {width}, {heads}): super().__init__({width}, {heads})", namespace)
    target = prepared(namespace["A"])
    assert target.error is None
    assert target.built == [f"{width}=24, {heads}=4", f"{width}=16, {heads}=4", f"{width}=10, {heads}=1"]
    assert [(s.widths, s.heads) for s in target.subjects] == [((24,) * 3, 4), ((16,) * 3, 4), ((10,) * 3, 1)]


class Everything(Attention):
    def __init__(
        self, d_model: int, n_heads: int = 8, *, max_len: int = 512, qkv_bias: bool = False, attn_drop: float = 0.1,
        device: Any = None, eps: float = 1e-5, layer_idx: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(d_model, n_heads, qkv_bias, attn_drop)
        self.max_len = max_len


def test_what_is_set_and_what_is_left_at_its_default() -> None:
    """Sizes and dropout are chosen even where there is a default; other defaults are the class's own choice."""
    assert prepared(Everything).built[0] == "d_model=24, n_heads=4, max_len=64, attn_drop=0.0"


class Unknown(Attention):
    def __init__(self, d_model: int, n_heads: int, flavour: str) -> None:
        super().__init__(d_model, n_heads)


def test_an_unknown_required_argument_is_the_user_s_to_give() -> None:
    told = str(prepared(Unknown).error)
    assert "building Unknown: 'flavour' has no default" in told
    assert '--target-init="flavour=..."' in told
    target = prepared(Unknown, init={"flavour": "plain"})
    assert target.error is None
    assert target.built == ["d_model=24, n_heads=4, flavour='plain'"]


def test_typed_keywords_win_and_make_one_configuration() -> None:
    target = prepared(Everything, init={"d_model": 12, "n_heads": 3, "eps": 0.5})
    assert [(s.widths[0], s.heads) for s in target.subjects] == [(12, 3)]
    assert "eps=0.5" in target.built[0]
    assert "building m.A" in str(prepared(Everything, init={"d_modell": 12}).error).replace("Everything", "m.A")


def test_an_instance_is_copied_and_a_factory_is_called() -> None:
    module = Attention(12, 3, dropout=0.25)
    kept = {k: v.clone() for k, v in module.state_dict().items()}
    target = prepared(module)
    assert target.error is None
    assert (target.built, target.subjects[0].widths[0]) == (["the given instance"], 12)
    assert target.subjects[0].module is not module
    assert (module.drop.p, module.training) == (0.25, True)
    assert all(torch.equal(v, kept[k]) for k, v in module.state_dict().items())

    def make_attention(d_model: int, num_heads: int) -> nn.Module:
        return Attention(d_model, num_heads)

    assert prepared(make_attention).built == [
        "d_model=24, num_heads=4", "d_model=16, num_heads=4", "d_model=10, num_heads=1",
    ]  # fmt: skip


class Failing(Attention):
    def __init__(self, d_model: int, n_heads: int) -> None:
        raise SystemExit("no GPU")


@pytest.mark.parametrize(
    ("obj", "text"),
    [(Failing, "building Failing(d_model=24, n_heads=4) raised SystemExit: no GPU"), (7, "int 7, expected a class")],
)
def test_what_cannot_be_built_is_said(obj: Any, text: str) -> None:
    target = prepared(obj)
    assert text in str(target.error)
    assert target.subjects == []


class NotTheSecondSize(Attention):
    def __init__(self, d_model: int, n_heads: int) -> None:
        if d_model == 16:
            raise ValueError
        super().__init__(d_model, n_heads)


def test_a_second_size_may_be_refused() -> None:
    texts = [recipe.text for recipe, _ in build(NotTheSecondSize, None, None)]
    assert texts == ["d_model=24, n_heads=4", "d_model=10, n_heads=1"]
    with pytest.raises(BadTarget):
        plan(NotTheSecondSize, None, None, SIZES[1]).make()


def test_building_is_seeded_and_leaves_the_random_state() -> None:
    state = torch.get_rng_state()
    (recipe, first), *_ = build(Everything, None, None)
    assert torch.equal(recipe.make().qkv.weight, first.qkv.weight)
    assert torch.equal(torch.get_rng_state(), state)
