"""Mask conventions: there and back again, refusals, and what the real API makes of them."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncheck.masks import additive, allowed, blocked, conventions, keep_int

TABLE = [torch.tensor(bits).view(2, 2) for bits in itertools.product((False, True), repeat=4)]
TABLE += [torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(i)) < 0.5 for i in range(8)]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
WRONG: dict[str, list[Tensor]] = {
    "allowed": [torch.ones(2, 2), torch.ones(2, 2).long(), torch.ones(2, 2).to(torch.uint8)],
    "blocked": [torch.ones(2, 2), torch.ones(2, 2).long(), torch.ones(2, 2).to(torch.uint8)],
    "additive": [torch.ones(2, 2).bool(), torch.zeros(2, 2).long()],
    "keep_int": [torch.ones(2, 2).bool(), torch.ones(2, 2), torch.tensor([0, 2]), torch.tensor([-1, 1])],
}


def test_all_conventions_are_found() -> None:
    assert set(conventions()) == {"allowed", "blocked", "additive", "keep_int"} == set(WRONG)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back_again(name: str, dtype: torch.dtype) -> None:
    convention = conventions()[name]
    for mask in TABLE:
        kept = mask.clone()
        back = convention.decode(convention.encode(mask, dtype))
        assert back.dtype == torch.bool
        assert torch.equal(back, mask)
        assert torch.equal(mask, kept)


@pytest.mark.parametrize(("name", "mask"), [(n, m) for n, masks in WRONG.items() for m in masks])
def test_another_form_is_refused_by_name(name: str, mask: Tensor) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"mask\.dtype={mask.dtype}: expected"):
        conventions()[name].decode(mask)


@pytest.mark.parametrize("bias", [-1e4, -1e9, torch.finfo(torch.float32).min, 1.0, torch.inf, torch.nan])
def test_a_bias_is_no_mask(bias: float) -> None:
    with pytest.raises(ValueError, match="other than 0 and -inf"):
        additive.decode(torch.tensor([0.0, -torch.inf, bias]))


def test_what_is_written() -> None:
    mask = torch.tensor([True, False])
    assert allowed.encode(mask).tolist() == [True, False]
    assert blocked.encode(mask).tolist() == [False, True]
    assert keep_int.encode(mask).tolist() == [1, 0]
    assert additive.encode(mask).tolist() == [0.0, -torch.inf]
    assert all(additive.encode(mask, dtype).dtype == dtype for dtype in DTYPES)


def attend(query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, memory, memory, attn_mask=mask)


def module(weights: bool, argument: str) -> Any:
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(6, 2, batch_first=True).eval()

    def call(query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        given = {argument: mask if argument == "attn_mask" else mask[0].expand(len(query), -1)}
        output: Tensor = mha(query, memory, memory, need_weights=weights, **given)[0]
        return output

    return call


APIS = [
    ("allowed", attend),
    ("additive", attend),
    *[(name, module(w, a)) for name in ("blocked", "additive") for w in (False, True)
      for a in ("attn_mask", "key_padding_mask")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "call"), APIS, ids=lambda x: x if isinstance(x, str) else x.__qualname__)
def test_the_real_api_reads_it_so(name: str, call: Any) -> None:
    """Editing a blocked key changes nothing, editing an allowed one changes every query."""
    draw = torch.Generator().manual_seed(1)
    query, memory = torch.randn(2, 3, 6, generator=draw), torch.randn(2, 4, 6, generator=draw)
    mask = torch.tensor([True, False, True, False]).expand(3, 4)
    native = conventions()[name].encode(mask)
    before = call(query, memory, native)
    for s in range(4):
        edited = memory.index_copy(1, torch.tensor([s]), torch.randn(2, 1, 6, generator=draw))
        moved = (call(query, edited, native) != before).any(-1)
        assert moved.all() if mask[0, s] else not moved.any()
