"""flex_attention: a mask is said in two ways, both are what they should be, and nothing stays switched."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor

from attncheck import wiring
from attncheck.allowed import random_mask
from attncheck.engine import run
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.subject import MASK_AXES, Answer, Case, Refusal, Subject, subject_of
from attncheck_adapters import torch_flex

SPEC = "torch.nn.attention.flex_attention.flex_attention"
CASE = Case("separate", 3, 5, 7)
FLEX = flex.flex_attention


@pytest.fixture
def subject() -> Subject:
    return subject_of(torch_flex.make(), "kernel")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The score_mod and the block_mask of each call."""
    calls: list[tuple[Any, Any]] = []

    def watched(query: Tensor, key: Tensor, value: Tensor, change: Any, block: Any, **given: Any) -> Any:
        calls.append((change, block))
        return FLEX(query, key, value, change, block, **given)

    monkeypatch.setattr(flex, "flex_attention", watched)
    return calls


@pytest.mark.parametrize("axes", MASK_AXES)
def test_a_mask_is_said_in_either_way(subject: Subject, seen: list[tuple[Any, Any]], axes: str) -> None:
    mask = random_mask(axes, subject, CASE)
    inputs = subject.draw(CASE)
    block, score = (subject.attempt(inputs, mask, CASE.but(options={"mask": way})) for way in ("block", "score"))
    assert isinstance(block, Answer) and isinstance(score, Answer)
    assert torch.allclose(block.output, score.output, rtol=0, atol=1e-6)
    assert [(change is None, blocks is None) for change, blocks in seen] == [(True, False), (False, True)]
    everywhere = torch.meshgrid(*map(torch.arange, (3, 4, 5, 7)), indexing="ij")
    dense = flex.create_mask(seen[0][1].mask_mod, 3, 4, 5, 7, device="cpu")
    assert torch.equal(dense, mask.expand(3, 4, 5, 7))
    places = [[int(x) for x in place] for place in zip(*(x.flatten() for x in everywhere), strict=True)]
    change = seen[1][0]
    said = torch.stack([change(torch.tensor(2.0), *map(torch.tensor, place)) for place in places]).view(3, 4, 5, 7)
    assert torch.equal(said == 2.0, dense) and torch.equal(said == -torch.inf, ~dense)


def test_without_a_mask_nothing_is_said(subject: Subject, seen: list[tuple[Any, Any]]) -> None:
    subject.attempt(subject.draw(CASE), None, CASE)
    assert seen == [(None, None)]


def test_dead_rows_give_zero(subject: Subject) -> None:
    mask = torch.ones(5, 7).bool()
    mask[1] = False
    for way in subject.options["mask"]:
        answer = subject.attempt(subject.draw(CASE), mask, CASE.but(options={"mask": way}))
        assert not answer.output[:, :, 1].any() and answer.output[:, :, 0].all()


def test_it_warns_of_nothing_and_leaves_the_switch(subject: Subject) -> None:
    before = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(subject.attempt(subject.draw(CASE), None, CASE), Answer)
        refused = subject.attempt(subject.draw(CASE), torch.ones(4, 4).bool(), CASE)
    assert isinstance(refused, Refusal) and not refused.unsupported
    assert before == flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG


def test_untraced_is_the_same_as_traced(subject: Subject) -> None:
    """The switch for debugging changes how it runs, not what."""
    mask, inputs = random_mask("NhTS", subject, CASE), subject.draw(CASE)
    got = subject.attempt(inputs, mask, CASE)
    block = flex.create_block_mask(lambda n, h, t, s: mask[n, h, t, s], 3, 4, 5, 7, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(got.output, FLEX(*inputs.tensors(), block_mask=block), rtol=0, atol=1e-6)


def test_gradients_are_refused_as_unsupported(subject: Subject) -> None:
    for mode in subject.modes:
        answer = subject.attempt(subject.draw(CASE).fresh(), None, CASE.but(mode=mode))
        assert isinstance(answer, Refusal) and answer.unsupported


SOUND = ("contract.shape", "mask.polarity", "mask.blocked-keys", "mask.allowed-keys", "mask.broadcast",
         "mask.fully-masked", "numeric.oracle", "symmetry.batch", "symmetry.permutation")  # fmt: skip


def test_it_is_sound() -> None:
    target = wiring.prepare(Request(SPEC), [])
    assert (target.error, target.adapter, target.kind) == (None, "torch_flex", "kernel")
    statuses = {check.id: run(check, target, "quick").status for check in checks_of("kernel") if check.id in SOUND}
    assert statuses == dict.fromkeys(SOUND, "passed")


def test_a_wrong_mask_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = wiring.prepare(Request(SPEC), [])
    polarity = next(check for check in checks_of("kernel") if check.id == "mask.polarity")
    sound = torch_flex.lookup
    monkeypatch.setattr(torch_flex, "lookup", lambda allowed: sound(~allowed))
    assert run(polarity, target, "quick").status == "failed"
