"""Which outputs see a key and which must not, by loops; and which are not judged, since they give a policy."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from attncheck.sight import Sight
from attncheck.subject import Case, Subject, subject_of

KEYS = [[0], [1, 2], [0, 1, 2]]


def subject(kind: str) -> Subject:
    return subject_of(SimpleNamespace(width=4, heads=2), kind)


def mask(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.4


def case(sources: str) -> Case:
    return Case(sources, 2, 4, 4)


def expected(allowed: Tensor, keys: list[int], tied: bool) -> dict[tuple[int, int], list[bool] | None]:
    """For each query, whether each head sees one of the keys; None where it is not judged."""
    told: dict[tuple[int, int], list[bool] | None] = {}
    for n in range(2):
        for t in range(4):
            rows = [allowed[n, i, t].tolist() for i in range(2)]
            fine = all(any(row) for row in rows) and not (tied and t in keys)
            told[n, t] = [any(row[s] for s in keys) for row in rows] if fine else None
    return told


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("sources", ["self", "memory"])
def test_an_attention_mixes_its_heads(sources: str, keys: list[int]) -> None:
    allowed = mask(2, 2, 4, 4)
    sight = Sight(subject("attention"), allowed, case(sources))
    wanted = expected(allowed, keys, sources == "self")
    assert any(wanted.values())
    for (n, t), heads in wanted.items():
        assert bool(sight.blind(keys)[n, t]) == (heads is not None and not any(heads))
        assert bool(sight.seeing(keys)[n, t]) == (heads is not None and any(heads))
        assert bool(sight.seeing(keys, every_head=True)[n, t]) == (heads is not None and all(heads))


@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_a_kernel_gives_each_head_apart(keys: list[int]) -> None:
    allowed = mask(2, 2, 4, 4)
    sight = Sight(subject("kernel"), allowed, case("separate"))
    for n in range(2):
        for i in range(2):
            for t in range(4):
                row = allowed[n, i, t].tolist()
                seen = any(row[s] for s in keys)
                assert bool(sight.blind(keys)[n, i, t]) == (any(row) and not seen)
                assert bool(sight.seeing(keys)[n, i, t]) == seen


def test_padded_queries_of_self_attention_are_not_judged() -> None:
    real = torch.tensor([[True, True, True, False], [True, False, True, True]])
    alone, across = (Sight(subject("attention"), real[:, None, None], case(s)) for s in ("clones", "memory"))
    assert torch.equal(alone.judged, real)
    assert across.judged.all()


def test_the_caller_s_rows_are_not_written_into() -> None:
    sight = Sight(subject("attention"), None, case("self"))
    sight.blind([1])
    assert sight.judged.all()
    assert sight.visible_NhTS.all()
