"""The masks that checks hand out: random, yet each query keeps a key, and loses one where it has two."""

from types import SimpleNamespace

import pytest
import torch

from attncheck.allowed import can_keep_a_key, full_mask, random_mask, triangle
from attncheck.compare import Vacuous
from attncheck.subject import MASK_AXES, Case, Subject, subject_of

SHAPES = {"TS": (4, 6), "N11S": (3, 1, 1, 6), "N1TS": (3, 1, 4, 6), "1hTS": (1, 2, 4, 6), "NhTS": (3, 2, 4, 6)}
PATTERNS: list[dict[str, str]] = [{}, {"causal": "top-left"}, {"causal": "bottom-right"}, {"window": "3"},
                                  {"window": "-1:1"}, {"causal": "prefix:2"}]  # fmt: skip


def subject(kind: str = "attention", **declared: str) -> Subject:
    return subject_of(SimpleNamespace(width=4, heads=2), kind, declared)


def case(seed: int = 0, **sizes: int) -> Case:
    return Case("separate", **{"N": 3, "T": 4, "S": 6, **sizes}, seed=seed)


@pytest.mark.parametrize("declared", PATTERNS, ids=str)
@pytest.mark.parametrize("axes", MASK_AXES)
def test_each_query_keeps_a_key_that_it_can_see(axes: str, declared: dict[str, str]) -> None:
    s = subject(**declared)
    if not can_keep_a_key(axes, s, case()):
        with pytest.raises(Vacuous):
            random_mask(axes, s, case())
        assert axes == "N11S"
        assert not s.pattern(4, 6).all(0).any()
        return
    for seed in range(25):
        mask = random_mask(axes, s, case(seed))
        assert mask.shape == SHAPES[axes]
        assert s.visible(mask, case(seed)).any(-1).all()
        pattern = s.pattern(4, 6)
        several = (pattern.all(0, keepdim=True) if axes == "N11S" else pattern).sum(-1) > 1
        lost = (pattern & ~mask).any(-1)
        assert (lost | ~several).all()


@pytest.mark.parametrize("axes", MASK_AXES)
def test_masks_are_random_and_repeatable(axes: str) -> None:
    masks = [random_mask(axes, subject(), case(seed)) for seed in range(40)]
    assert torch.equal(random_mask(axes, subject(), case(7)), masks[7])
    share = torch.stack(masks).double().mean(0)
    assert float(share.min()) > 0.1
    assert float(share.max()) < 0.9


def test_a_single_key_is_kept() -> None:
    assert random_mask("TS", subject(), case(S=1)).all()


def test_the_triangle() -> None:
    assert triangle(case(T=2, S=3)).long().tolist() == [[1, 0, 0], [1, 1, 0]]


def test_a_mask_written_out_is_the_same() -> None:
    mask = random_mask("1hTS", subject(), case())
    full = full_mask(mask, subject(), case())
    assert full.is_contiguous()
    assert all(torch.equal(full[n, i], mask[0, i]) for n in range(3) for i in range(2))
