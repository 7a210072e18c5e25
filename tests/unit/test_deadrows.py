"""What a query without a key gives: each policy is recognised, and the printed test holds for it alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.deadrows import dead_mask, dead_rows, dead_test, policy_of
from attncheck.subject import Answer, Case, Subject, subject_of
from attncheck_adapters import reference

CASE = Case("self", 2, 5, 5, seed=4)
POLICIES = {"nan": "nan", "zero": "zero", "uniform": "uniform", "refuse": "raise"}


def subject(dead_rows: str) -> Subject:
    return subject_of(reference.make(width=24, heads=4, dead_rows=dead_rows), "attention")


class Own:
    """An attention without parameters whose weights of a dead row are its own affair."""

    width, heads = 6, 1

    def __init__(self, dead: Any) -> None:
        self.dead = dead

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        scores = query @ key.mT
        allowed = torch.ones_like(scores).bool() if allowed is None else allowed.expand_as(scores)
        lost = ~allowed.any(-1, keepdim=True)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        return torch.where(lost, self.dead(scores), weights) @ value, None


OWN = {
    "unmasked": lambda scores: scores.softmax(-1),
    "undefined": lambda scores: scores,
    "undefined, NaN in one row": lambda scores: torch.full_like(scores, 0.2).index_fill(-2, torch.tensor(4), torch.nan),
    "uniform": lambda scores: torch.full_like(scores, 1 / scores.shape[-1]),
    "nan": lambda scores: torch.full_like(scores, torch.nan),
}


@pytest.mark.parametrize("axes", ["TS", "N1TS", "NhTS", "N11S"])
@pytest.mark.parametrize("given", POLICIES)
def test_the_policies_of_the_reference(given: str, axes: str) -> None:
    s = subject(given)
    policy, shown = policy_of(s, s.draw(CASE), dead_mask(axes, s, CASE), CASE)
    assert policy == POLICIES[given]
    assert isinstance(shown, Answer) == (given != "refuse")


@pytest.mark.parametrize("policy", OWN)
def test_the_policies_of_others(policy: str) -> None:
    s = subject_of(Own(OWN[policy]), "attention")
    assert policy_of(s, s.draw(CASE), dead_mask("TS", s, CASE), CASE)[0] == policy.partition(",")[0]


@pytest.mark.parametrize("axes", ["TS", "N1TS", "NhTS", "N11S"])
def test_two_queries_are_dead_and_the_others_alive(axes: str) -> None:
    mask = dead_mask(axes, subject("nan"), CASE).expand(2, 4, 5, 5)
    alive = mask.any(-1)
    assert not alive[0, :, -2:].any()
    assert alive[1].all() or axes == "TS"
    assert alive[0, :, :3].all() or axes == "N11S"


@pytest.mark.parametrize("given", ["nan", "zero", "uniform"])
@pytest.mark.parametrize("wanted", ["nan", "zero", "uniform", "raise"])
def test_the_printed_test_holds_for_its_policy_alone(given: str, wanted: str) -> None:
    s = subject(given)
    mask, inputs = dead_mask("TS", s, CASE), s.draw(CASE)
    answer = s.attempt(inputs, mask, CASE)
    assert isinstance(answer, Answer)
    names = dict(zip(("query", "key", "value"), inputs.tensors(), strict=True))
    namespace = {"torch": torch, "call": s.adapter.call, "before": answer.out, "allowed": mask, **names}
    if given == wanted:
        exec(dead_test(wanted, CASE), namespace)
    else:
        with pytest.raises(AssertionError):
            exec(dead_test(wanted, CASE), namespace)


def test_the_rows_of_the_first_sample() -> None:
    s = subject("zero")
    answer = s.attempt(s.draw(CASE), None, CASE)
    assert isinstance(answer, Answer)
    assert torch.equal(dead_rows(answer), answer.out[0, 3:])
