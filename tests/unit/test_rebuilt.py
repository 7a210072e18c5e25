"""The same target again: built anew, with its saved state loaded, as a deep copy, with odd sizes, and forgetful."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck.subject import Answer, Case, Refusal, Subject, TimedOut, subject_of

CASE = Case("self", 2, 3, 3)
SOURCE = """\
torch.manual_seed(0)
target = Target()


def call(query, key, value, allowed):
    return target(query), None"""


class Counting(nn.Module):
    """A linear map, a count that is no part of the saved state, and a memory that `forget` clears."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls, self.kept = nn.Linear(4, 4), 0, 0

    def forget(self) -> None:
        self.kept = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls, self.kept = self.calls + 1, self.kept + 1
        return self.linear(x) * self.kept  # type: ignore[no-any-return]


class Adapter:
    width = heads = 4

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.seed, self.module = seed, Counting()

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
        return self.module(query), None

    def rebuilt(self, seed: int) -> "Adapter | None":
        return Adapter(seed)

    def source(self, masks: Any) -> str:
        return SOURCE


def subject(adapter: Any = None, **declare: str) -> Subject:
    return subject_of(adapter or Adapter(), "attention", {"stateful": "forget", **declare})


def weight(s: Subject) -> Tensor:
    return s.module.linear.weight.detach()


def answer(s: Subject) -> Answer:
    given = s.attempt(s.draw(CASE), None, CASE)
    assert isinstance(given, Answer), given
    return given


@pytest.fixture
def used() -> Subject:
    """Called once, and trained a little."""
    s = subject()
    answer(s)
    with torch.no_grad():
        s.module.linear.weight.mul_(2)
    return s


def test_built_anew_it_is_as_before_its_first_call(used: Subject) -> None:
    again = used.rebuilt()
    assert torch.equal(weight(again), weight(subject()))
    assert (again.module.calls, used.module.calls) == (0, 1)
    assert not torch.equal(weight(used.rebuilt(seed=5)), weight(again))
    assert used.rebuilt(seed=5).adapter.seed == 5


def test_built_anew_it_has_the_dtype_of_the_subject_and_none_of_its_twins(used: Subject) -> None:
    used.with_dropout(0.5)
    assert weight(used.at(torch.float64).rebuilt()).dtype == torch.float64
    assert used.twins and used.rebuilt().twins == {}


def test_reloaded_it_has_the_saved_state_and_nothing_else(used: Subject) -> None:
    loaded = used.reloaded()
    assert torch.equal(weight(loaded), weight(used))
    assert loaded.adapter.seed == 1
    assert loaded.module.calls == 0
    assert torch.equal(answer(loaded).out, answer(used).out)


def test_the_setup_of_a_reloaded_one_does_the_same(used: Subject) -> None:
    names: dict[str, Any] = {"torch": torch, "Target": Counting}
    exec(SOURCE, names)
    first = names["target"]
    with torch.no_grad():
        first.linear.weight.mul_(2)
    exec("\n".join(used.reloaded().setup), names)
    assert names["kept"] is first and names["target"] is not first
    assert torch.equal(names["target"].linear.weight, weight(used))


def test_a_copy_leaves_the_original_alone(used: Subject) -> None:
    twin = used.copied()
    assert (twin.module.calls, twin.twins) == (1, {})
    answer(twin)
    with torch.no_grad():
        twin.module.linear.weight.zero_()
    assert used.module.calls == 1
    assert not torch.equal(weight(twin), weight(used))
    target = Counting()
    names: dict[str, Any] = {"target": target}
    exec("\n".join(twin.setup), names)
    assert names["target"] is not target
    assert torch.equal(names["target"].linear.weight, target.linear.weight)


def test_what_a_first_call_adds_to_the_saved_state_is_left_out(used: Subject) -> None:
    used.module.register_buffer("seen", torch.ones(3))
    assert torch.equal(weight(used.reloaded()), weight(used))
    assert not hasattr(used.reloaded().module, "seen")


@pytest.mark.parametrize("how", ["no way", "None"])
def test_what_cannot_be_built_anew(how: str) -> None:
    class Given(Adapter):
        rebuilt = None if how == "no way" else lambda self, seed: None  # type: ignore[assignment]

    s = subject(Given())
    assert s.rebuilt() is None
    assert s.reloaded() is None


def with_odd_sizes(give: Any) -> Subject:
    class Odd(Adapter):
        def undivided(self) -> Any:
            return give()

    return subject(Odd())


def raising(error: BaseException) -> Any:
    def give() -> Any:
        raise error

    return give


@pytest.mark.parametrize("error", [ValueError("10 % 4"), AssertionError(), SystemExit(1)], ids=repr)
def test_an_exception_of_odd_sizes_is_data(error: BaseException) -> None:
    assert with_odd_sizes(raising(error)).undivided() is error


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimedOut])
def test_an_interrupt_is_none(error: type[BaseException]) -> None:
    with pytest.raises(error):
        with_odd_sizes(raising(error())).undivided()


def test_odd_sizes_are_those_of_the_subject() -> None:
    odd = copy.copy(Adapter())
    odd.widths, odd.heads = (10, 10, 10), 3  # type: ignore[attr-defined]
    made = with_odd_sizes(lambda: odd).undivided()
    assert isinstance(made, Subject)
    assert (made.adapter, made.widths, made.heads, made.twins) == (odd, (10, 10, 10), 3, {})
    assert made.draw(CASE).query.shape == (2, 3, 10)
    assert with_odd_sizes(lambda: None).undivided() is None
    assert subject().undivided() is None


def test_a_stateful_target_is_told_before_every_call() -> None:
    s = subject()
    first, second = answer(s), answer(s)
    assert torch.equal(first.out, second.out)
    assert s.module.kept == 1
    forgetful = subject_of(Adapter(), "attention")
    assert torch.equal(answer(forgetful).out * 2, answer(forgetful).out)


def test_a_reset_that_raises_or_is_not_there_is_a_refusal() -> None:
    s = subject(stateful="no_such_method")
    given = s.attempt(s.draw(CASE), None, CASE)
    assert isinstance(given, Refusal)
    assert isinstance(given.error, AttributeError)
