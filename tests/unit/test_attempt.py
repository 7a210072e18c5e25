"""One call of a target: whatever it does is an answer or a refusal, and what surrounds the call stays as it was."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.engine import quiet
from attncheck.subject import MODES, Answer, Case, Refusal, Refused, Subject, TimedOut, subject_of

CASE = Case("self", 2, 3, 3)


def subject(call: Any, **told: Any) -> Subject:
    return subject_of(SimpleNamespace(width=4, heads=2, call=call, **told), "attention")


def attempt(call: Any, case: Case = CASE, allowed: Tensor | None = None, seed: int = 0, **told: Any) -> Any:
    s = subject(call, **told)
    return s.attempt(s.draw(case), allowed, case, seed)


def raising(error: BaseException) -> Any:
    def call(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "error", [ValueError("a\n b"), SystemExit(3), GeneratorExit(), AssertionError(), Refused("no")], ids=repr
)
def test_an_exception_is_an_answer(error: BaseException) -> None:
    refusal = attempt(raising(error))
    assert isinstance(refusal, Refusal)
    assert refusal.error is error
    assert refusal.unsupported == isinstance(error, Refused)
    assert str(refusal).startswith(type(error).__name__)
    assert "\n" not in str(refusal)


def test_deep_recursion_is_an_answer() -> None:
    def call(*args: Any) -> Any:
        return call(*args)

    assert isinstance(attempt(call).error, RecursionError)
    assert sys.getrecursionlimit() > 500


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimedOut])
def test_an_interrupt_and_the_end_of_the_time_are_none(error: type[BaseException]) -> None:
    with pytest.raises(error):
        attempt(raising(error()))


X = torch.ones(2, 3, 4)
WRONG = {
    "None": None, "one tensor": X, "a list": X.tolist(), "an array": (X.numpy(), None), "three": (X, None, None),
    "a number": (1.0, None), "weights that are none": (X, [1.0]), "nothing": (),
}  # fmt: skip


@pytest.mark.parametrize("result", WRONG.values(), ids=list(WRONG))
def test_a_wrong_type_is_refused(result: Any) -> None:
    refusal = attempt(lambda q, k, v, allowed: result)
    assert isinstance(refusal, Refusal), refusal
    assert "expected" in str(refusal)
    assert not refusal.unsupported


def test_an_answer_has_the_output_without_its_graph() -> None:
    answer = attempt(lambda q, k, v, allowed: ((q * 2).requires_grad_(), q.softmax(-1)))
    assert isinstance(answer, Answer)
    assert answer.output.requires_grad
    assert not answer.out.requires_grad
    assert answer.weights is not None


@pytest.mark.parametrize("mode", MODES)
def test_mode_and_gradients_are_the_case_s(mode: str) -> None:
    module = nn.Dropout(0.5)
    seen = []

    def call(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Any:
        seen.append((module.training, torch.is_grad_enabled()))
        raise ValueError

    with torch.no_grad():
        attempt(call, CASE.but(mode=mode), module=module)
        assert not torch.is_grad_enabled()
    attempt(call, CASE.but(mode=mode), module=module)
    assert torch.is_grad_enabled()
    assert seen == [(mode.startswith("train"), "no-grad" not in mode)] * 2


def test_options_and_strides_reach_the_call() -> None:
    seen: dict[str, Any] = {}

    def call(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, *, weights: bool) -> Any:
        seen.update(weights=weights, stride=q.stride(-1), same=q is k and k is v)
        return q, None

    attempt(call, CASE.but(options={"weights": True}, strided=True))
    assert seen == {"weights": True, "stride": 2, "same": True}


def test_the_mask_of_the_answer_is_what_was_asked() -> None:
    """Also where the target writes into the mask that it was given."""

    def call(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Any:
        allowed.fill_(True)
        return q, None

    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    answer = attempt(call, allowed=mask)
    assert torch.equal(answer.allowed, torch.ones(3, 3, dtype=torch.bool).tril())


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    def call(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Any:
        return torch.rand_like(q), None

    first = attempt(call, seed=1).out
    torch.rand(7)
    assert torch.equal(attempt(call, seed=1).out, first)
    assert not torch.equal(attempt(call, seed=2).out, first)


@pytest.mark.parametrize("fails", [False, True])
def test_quiet_restores_threads_and_random_state(fails: bool) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        state = torch.get_rng_state()
        try:
            with quiet():
                assert torch.get_num_threads() == 1
                attempt(lambda q, k, v, allowed: (torch.rand_like(q), None), seed=3)
                if fails:
                    raise KeyError
        except KeyError:
            pass
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        torch.set_num_threads(threads)
