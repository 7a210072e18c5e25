"""The comparison with a bound: when the bound is asked for, which outputs are judged, and the test of its script."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.compare import Failure, close, floor_of
from attncheck.subject import Answer, Case, subject_of

CASE = Case("self", 2, 3, 3)
SUBJECT = subject_of(SimpleNamespace(width=4), "attention")
PLAIN = torch.arange(1.0, 25.0).view(2, 3, 4)
FLOOR = 64 * 2.0**-23 * 24  # of PLAIN, whose largest number is 24


def answer(output: Tensor) -> Answer:
    return Answer(output, None, SUBJECT.draw(CASE), None, CASE, SUBJECT)


def off_by(size: float, at: tuple[int, int, int] = (1, 2, 3)) -> Answer:
    output = PLAIN.clone()
    output[at] += size
    return answer(output)


def asked(value: float) -> tuple[Callable[[], float], list[float]]:
    """A bound, and a list of the times when it was asked for."""
    times: list[float] = []

    def bound() -> float:
        times.append(value)
        return value

    return bound, times


def test_the_floor_is_64_eps_of_the_largest_expected_output() -> None:
    assert floor_of(off_by(0), PLAIN) == FLOOR
    assert floor_of(off_by(0), torch.tensor([torch.nan, -2.0, torch.inf])) == 64 * 2.0**-23 * 2


@pytest.mark.parametrize("size", [0.0, 0.99 * FLOOR])
def test_a_bound_is_not_asked_where_the_floor_settles_it(size: float) -> None:
    bound, times = asked(0.0)
    close(off_by(size), PLAIN, bound, "")
    close(off_by(size), PLAIN, 0.0, "")
    assert times == []


@pytest.mark.parametrize(("size", "value", "passes"), [
    (1.1 * FLOOR, FLOOR, False), (0.5, 0.5, True), (0.5, 0.4, False), (torch.nan, 1e9, False), (torch.inf, 1e9, False),
])  # fmt: skip
def test_a_bound_is_asked_once_where_it_does_not(size: float, value: float, passes: bool) -> None:
    bound, times = asked(value)
    if passes:
        close(off_by(size), PLAIN, bound, "")
    else:
        with pytest.raises(Failure, match=r"output\[1, 2, 3\].* \(bound "):
            close(off_by(size), PLAIN, bound, "")
    assert times == [value]


def test_a_failure_tells_the_bound_that_was_asked_for() -> None:
    bound, _ = asked(0.25)
    with pytest.raises(Failure, match=r"off by 0\.5 \(bound 0\.2\), the most of 1 of 6 queries") as caught:
        close(off_by(0.5), PLAIN, bound, "")
    assert caught.value.test.endswith("<= 0.25")


ROWS = torch.tensor([[True, True, False], [True, True, True]])


def test_outputs_that_are_not_judged_neither_fail_nor_ask() -> None:
    bound, times = asked(0.0)
    close(off_by(7.0, (0, 2, 1)), PLAIN, bound, "", rows=ROWS)
    close(off_by(torch.nan, (0, 2, 1)), PLAIN, bound, "", rows=ROWS)
    assert times == []


def test_the_place_that_is_told_is_a_judged_one() -> None:
    both = answer(off_by(7.0, (0, 2, 1)).output + off_by(0.5, (1, 0, 2)).output - PLAIN)
    with pytest.raises(Failure, match=r"output\[1, 0, 2\] is 15\.5, expected 15; .*the most of 1 of 6"):
        close(both, PLAIN, 0.1, "", rows=ROWS)


def told_by(got: Answer, want: Tensor, **told: Any) -> str:
    with pytest.raises(Failure) as caught:
        close(got, want, 0.1, "", **told)
    assert caught.value.after is (got if "other" in told else None)
    return caught.value.test


def holds(test: str, **names: Tensor) -> bool:
    try:
        exec(test, {"torch": torch, **names})
    except AssertionError:
        return False
    return True


def test_the_script_against_the_reference() -> None:
    test = told_by(off_by(0.5), PLAIN)
    assert [holds(test, before=PLAIN + x) for x in (0.05, 0.5, -0.5)] == [True, False, False]


@pytest.mark.parametrize("rows", [None, torch.ones(2, 3, dtype=torch.bool)])
def test_the_script_against_another_call(rows: Tensor | None) -> None:
    test = told_by(off_by(0.5), PLAIN, other=(answer(PLAIN / 2), "before * 2"), rows=rows)
    assert "judged" not in test
    assert holds(test, before=PLAIN / 2, after=PLAIN + 0.05)
    assert not holds(test, before=PLAIN / 2, after=off_by(0.5).output)


def test_the_script_judges_the_same_rows() -> None:
    test = told_by(off_by(0.5), PLAIN, other=(answer(PLAIN / 2), "before * 2"), rows=ROWS)
    assert holds(test, before=PLAIN / 2, after=off_by(0.5, (0, 2, 1)).output)
    assert not holds(test, before=PLAIN / 2, after=off_by(0.5, (0, 1, 1)).output)


@pytest.mark.parametrize("rows", [None, ROWS])
def test_the_script_cuts_the_part_out_of_the_second_call(rows: Tensor | None) -> None:
    """The second call had two queries more, which are not compared."""
    got = off_by(0.5)
    test = told_by(got, PLAIN, other=(answer(PLAIN), "before"), rows=rows, part="after[..., 2:, :]")
    longer = torch.cat((torch.full((2, 2, 4), 99.0), PLAIN), 1)
    assert holds(test, before=PLAIN, after=longer)
    assert not holds(test, before=PLAIN, after=torch.cat((PLAIN[:, :2], got.output), 1))


def test_another_shape_has_a_script_too() -> None:
    short = answer(torch.ones(2, 3, 2))
    alone, second = told_by(short, PLAIN), told_by(short, PLAIN, other=(answer(PLAIN), "before"))
    assert holds(alone, before=PLAIN) and not holds(alone, before=short.output)
    assert holds(second, before=PLAIN, after=PLAIN) and not holds(second, before=PLAIN, after=short.output)


def test_narrowed_keeps_the_queries_from_there_on() -> None:
    part = answer(PLAIN).narrowed(1, 2)
    assert torch.equal(part.out, PLAIN[:, 1:])
    assert torch.equal(answer(PLAIN[:, None]).narrowed(0, 1).out, PLAIN[:, None, :1])
