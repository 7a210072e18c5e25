"""Inputs: an edit changes what it says and nothing else, and never to what was there before."""

import pytest
import torch

from attncheck.inputs import GROUPS, Inputs, drawn

SHAPES = {"attention": [(3, 4, 6), (3, 5, 6), (3, 5, 6)], "kernel": [(3, 4, 4, 6), (3, 2, 5, 6), (3, 2, 5, 6)]}
each_source = pytest.mark.parametrize("sources", GROUPS)
each_kind = pytest.mark.parametrize("kind", SHAPES)


def draw(sources: str, kind: str = "attention", seed: int = 5, dtype: torch.dtype = torch.float32) -> Inputs:
    shapes = SHAPES[kind]
    shapes = [shapes[0]] * 3 if sources in ("self", "clones") else shapes
    return drawn(sources, shapes, seed, dtype, torch.device("cpu"))


@each_source
@each_kind
def test_an_edit_changes_the_named_keys_and_values_and_nothing_else(kind: str, sources: str) -> None:
    before = draw(sources, kind)
    after = before.edited([1, 3], seed=5)
    for name, was, now in zip(("query", "key", "value"), before.tensors(), after.tensors(), strict=True):
        moved = (was != now).flatten(0, -3).transpose(-1, -2)
        assert now.shape == was.shape
        spared = name == "query" and not before.tied
        expected = torch.zeros(was.shape[-2], dtype=torch.bool)
        expected[[1, 3]] = not spared
        assert torch.equal(moved.all((0, 1)), expected)
        assert torch.equal(moved.any(1).any(0), expected)


@each_source
@each_kind
def test_another_sample_is_new_in_all_tensors(kind: str, sources: str) -> None:
    before = draw(sources, kind)
    after = before.resampled(1, seed=5)
    for was, now in zip(before.tensors(), after.tensors(), strict=True):
        moved = (was != now).flatten(1)
        assert moved[1].all()
        assert not moved[[0, 2]].any()


@each_source
def test_an_edit_is_never_the_draw_again(sources: str) -> None:
    """Also where the edit has the draw's own seed and replaces all of it."""
    for seed in range(40):
        before = drawn(sources, [(1, 1, 6)] * 3, seed, torch.float32, torch.device("cpu"))
        for after in (before.edited([0], seed), before.resampled(0, seed)):
            assert (before.value != after.value).all()


def test_edits_differ_by_seed_and_between_key_and_value() -> None:
    x = draw("separate")
    first, again, other = x.edited([2], 1), x.edited([2], 1), x.edited([2], 2)
    assert torch.equal(first.key, again.key)
    assert (first.key[:, 2] != other.key[:, 2]).all()
    assert (first.key[:, 2] != first.value[:, 2]).all()


def test_the_size_of_an_edit() -> None:
    x = draw("self")
    assert torch.equal(x.edited([2], 1, 1e4).key[:, 2], x.edited([2], 1).key[:, 2] * 1e4)


@each_source
def test_scaling_takes_the_query_and_what_is_one_with_it(sources: str) -> None:
    before = draw(sources)
    after = before.scaled(2.0)
    assert torch.equal(after.query, before.query * 2)
    assert torch.equal(after.key, before.key * 2 if before.tied else before.key)


def test_a_draw_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = draw("separate").query
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(draw("separate").query, first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(draw("separate", seed=6).query, first)


def test_fresh_leaves_collect_gradients() -> None:
    x = draw("memory").strided().fresh()
    (x.query.sum() + 2 * x.key.sum() + 3 * x.value.sum()).backward()
    assert (float(x.query.grad[0, 0, 0]), float(x.key.grad[0, 0, 0])) == (1.0, 5.0)
