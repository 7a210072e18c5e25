"""Inputs: the code that they carry rebuilds them bit for bit, and what is one tensor stays one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attncheck.inputs import GROUPS, Inputs, drawn

SHAPES = {"attention": [(3, 4, 6), (3, 5, 6), (3, 5, 6)], "kernel": [(3, 4, 4, 6), (3, 2, 5, 6), (3, 2, 5, 6)]}
CHANGES: dict[str, Callable[[Inputs], Inputs]] = {
    "drawn": lambda x: x,
    "edited": lambda x: x.edited([1, 3], 9, 1e4),
    "resampled": lambda x: x.resampled(2, 9),
    "scaled": lambda x: x.scaled(316.0),
    "reindexed samples": lambda x: x.reindexed([2, 0, 0], 0),
    "reindexed memory": lambda x: x.reindexed([3, 1, 0, 2], -2, "key value"),
    "to float64": lambda x: x.to(torch.float64),
    "strided": lambda x: x.strided(),
    "copied": lambda x: x.strided().copied(),
    "fresh": lambda x: x.fresh(),
    "all": lambda x: x.edited([0], 4).to(torch.float16).scaled(3.0).reindexed([1], 0).strided(),
}
each_source = pytest.mark.parametrize("sources", GROUPS)
each_kind = pytest.mark.parametrize("kind", SHAPES)


def draw(sources: str, kind: str = "attention", seed: int = 5, dtype: torch.dtype = torch.float32) -> Inputs:
    shapes = SHAPES[kind]
    shapes = [shapes[0]] * 3 if sources in ("self", "clones") else shapes
    return drawn(sources, shapes, seed, dtype, torch.device("cpu"))


def rebuilt(inputs: Inputs) -> list[torch.Tensor]:
    namespace: dict[str, Any] = {"torch": torch}
    exec("\n".join(inputs.code), namespace)
    return [namespace[name] for name in ("query", "key", "value")]


def sharing(tensors: Any) -> tuple[bool, bool]:
    query, key, value = tensors
    return query is key, key is value


@pytest.mark.parametrize("change", CHANGES)
@each_source
@each_kind
def test_the_code_rebuilds_the_tensors(kind: str, sources: str, change: str) -> None:
    made = CHANGES[change](draw(sources, kind))
    again = rebuilt(made)
    for got, want in zip(again, made.tensors(), strict=True):
        assert torch.equal(got, want)
        assert (got.dtype, got.stride(), got.requires_grad) == (want.dtype, want.stride(), want.requires_grad)
    assert sharing(again) == sharing(made.tensors())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("change", CHANGES)
def test_the_code_rebuilds_other_dtypes(change: str, dtype: torch.dtype) -> None:
    made = CHANGES[change](draw("separate", dtype=dtype))
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(rebuilt(made), made.tensors(), strict=True))


@pytest.mark.parametrize("change", [c for c in CHANGES if c != "reindexed memory"])
@each_source
def test_what_is_one_tensor_stays_one(sources: str, change: str) -> None:
    made = CHANGES[change](draw(sources))
    assert sharing(made.tensors()) == {"self": (True, True), "memory": (False, True)}.get(sources, (False, False))
    query, key, value = made.tensors()
    if sources == "clones":
        assert torch.equal(query, key)
        assert torch.equal(key, value)
        assert len({x.data_ptr() for x in made.tensors()}) == 3
    if sources == "separate":
        assert not torch.equal(key, value)
    assert made.tied == (sources in ("self", "clones"))
