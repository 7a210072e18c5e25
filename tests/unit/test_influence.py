"""The influence map of a finding: which key moves which query, where that says something."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.compare import Failure
from attncheck.finding import LARGEST, influence_of
from attncheck.subject import Answer, Case, Refusal, Subject, subject_of


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
    scores = q @ k.mT
    scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ v, None


def told(call: Any = attend, kind: str = "attention", **declare: str) -> Subject:
    adapter = SimpleNamespace(width=4, heads=2 if kind == "kernel" else 1, call=call)
    return subject_of(adapter, kind, declare)


def map_of(s: Subject, case: Case, allowed: Tensor | None = None) -> Any:
    before = s.attempt(s.draw(case), allowed, case)
    assert isinstance(before, Answer), before
    return influence_of(s, Failure("", before))


SELF = Case("self", 2, 3, 3)
ACROSS = Case("separate", 2, 2, 4)
TRIANGLE = torch.ones(3, 3, dtype=torch.bool).tril()


@pytest.mark.parametrize("kind", ["attention", "kernel"])
@pytest.mark.parametrize("case", [SELF.but(sources="separate"), ACROSS])
def test_what_moves_and_what_may(kind: str, case: Case) -> None:
    moved, expected = map_of(told(kind=kind, causal="top-left"), case)
    assert moved == [[1] * case.S] * case.T
    assert expected == torch.ones(case.T, case.S).tril().long().tolist()


def test_it_is_made_under_the_mask_of_the_finding() -> None:
    sees_ahead = told(lambda q, k, v, allowed: attend(q, k, v, allowed | allowed.roll(1, -1)))
    moved, expected = map_of(sees_ahead, SELF, TRIANGLE)
    assert (moved, expected) == ([[1, 1, 0], [1, 1, 1], [1, 1, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_none_where_it_equals_what_is_expected() -> None:
    assert map_of(told(), SELF) == (None, None)
    assert map_of(told(), SELF, TRIANGLE) == (None, None)


@pytest.mark.parametrize(("T", "S", "drawn"), [
    (LARGEST, LARGEST, True), (1, LARGEST, True), (LARGEST + 1, 2, False), (2, LARGEST + 1, False),
])  # fmt: skip
def test_none_where_it_would_be_too_large(T: int, S: int, drawn: bool) -> None:
    assert LARGEST == 12
    moved, expected = map_of(told(causal="top-left"), Case("separate", 1, T, S))
    assert (moved is not None, expected is not None) == (drawn, drawn)


def test_none_where_sizes_do_not_fit() -> None:
    """A mask of fewer keys, a memory that was cut, an output of other positions or without samples: all answered."""
    lax = told(lambda q, k, v, allowed: (q + v.mean(-2, keepdim=True), None), causal="top-left")
    assert map_of(lax, SELF)[0] is not None
    assert map_of(lax, SELF, TRIANGLE[:, :1])[0] is not None
    assert map_of(lax, SELF, TRIANGLE[:, :2]) == (None, None)
    cut = lax.attempt(lax.draw(ACROSS).cut("key value", -2, 3), None, ACROSS)
    assert influence_of(lax, Failure("", cut)) == (None, None)
    assert map_of(told(lambda q, k, v, allowed: (q[:, 1:], None), causal="top-left"), SELF) == (None, None)
    assert map_of(told(lambda q, k, v, allowed: (q[:, 0], None), causal="top-left"), SELF) == (None, None)


def test_none_where_a_call_is_refused() -> None:
    calls = []

    def twice(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > 2:
            raise RuntimeError("enough")
        return attend(*given)

    assert map_of(told(twice, causal="top-left"), SELF) == (None, None)
    assert len(calls) == 3
    s = told()
    refused = Refusal(ValueError(), s.draw(SELF), None, SELF, s)
    assert influence_of(s, Failure("", refused)) == influence_of(s, Failure("", None)) == (None, None)
