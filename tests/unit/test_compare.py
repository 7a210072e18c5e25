"""Comparators: each is fed a wrong answer, and must say so; each is fed a right one, and must be silent."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck import compare
from attncheck.compare import Failure, Inapplicable, Rounding, Vacuous, answered, changed, close, finite, unchanged
from attncheck.subject import Answer, Case, Refusal, Refused, subject_of

CASE = Case("self", 2, 3, 3)
SUBJECT = subject_of(SimpleNamespace(width=4), "attention")
ALL = torch.ones(2, 3, dtype=torch.bool)
PLAIN = torch.arange(1.0, 25.0).view(2, 3, 4)


def answer(output: Tensor) -> Answer:
    return Answer(output, None, SUBJECT.draw(CASE), None, CASE, SUBJECT)


def with_value(value: float, row: tuple[int, int] = (1, 2)) -> Answer:
    output = PLAIN.clone()
    output[(*row, 3)] = value
    return answer(output)


SAME = answer(PLAIN)
WRONG = {
    "a number": (SAME, with_value(7.5)),
    "NaN after": (SAME, with_value(torch.nan)),
    "NaN before": (with_value(torch.nan), SAME),
    "NaN on both sides": (with_value(torch.nan), with_value(torch.nan)),
    "inf after": (SAME, with_value(torch.inf)),
    "inf before": (with_value(torch.inf), SAME),
    "inf of another sign": (with_value(torch.inf), with_value(-torch.inf)),
    "a number beside a kept inf": (with_value(torch.inf, (0, 0)), answer(with_value(torch.inf, (0, 0)).output + PLAIN)),
}
each_wrong = pytest.mark.parametrize(("before", "after"), WRONG.values(), ids=list(WRONG))


@each_wrong
def test_unchanged_sees_every_difference(before: Answer, after: Answer) -> None:
    with pytest.raises(Failure, match=r"the edit: the output of batch \d, query \d (changed|is not finite)") as caught:
        unchanged(before, after, ALL, "the edit")
    assert (caught.value.before, caught.value.after) == (before, after)


@each_wrong
def test_close_sees_every_difference(before: Answer, after: Answer) -> None:
    with pytest.raises(Failure, match="is off by"):
        close(after, before.out, 1e-3, "the edit")


def test_right_answers_pass_in_silence() -> None:
    assert unchanged(SAME, answer(PLAIN.clone()), ALL, "") is None
    assert changed(SAME, answer(PLAIN + 1), ALL, "") is None
    assert close(answer(PLAIN + 0.5), PLAIN, 0.5, "") is None
    assert finite(SAME) is None
    assert compare.premise(ALL.any(), "") is None
    assert compare.same_shape(SAME, SAME) is None
    assert answered(SAME) is SAME


@pytest.mark.parametrize("off", [1e-6, 1e-5])
def test_a_difference_of_rounding_size_is_called_so(off: float) -> None:
    with pytest.raises(Rounding, match="which is rounding"):
        unchanged(SAME, with_value(24 * (1 + off / 24)), ALL, "")


def test_a_small_difference_above_rounding_is_a_failure() -> None:
    with pytest.raises(Failure, match=r"changed by 9\.9e-05"):
        unchanged(SAME, with_value(24.0001), ALL, "")


def test_rows_that_are_not_judged_may_be_anything() -> None:
    rows = ALL.clone()
    rows[1, 2] = False
    for value in (7.5, torch.nan, torch.inf):
        unchanged(SAME, with_value(value), rows, "")
        finite(with_value(value), rows)
    changed(SAME, answer(torch.where(rows[..., None], PLAIN + 1, PLAIN)), rows, "")


def test_changed_fails_on_one_still_row() -> None:
    still = PLAIN + 1
    still[1, 0] = PLAIN[1, 0]
    with pytest.raises(Failure, match="batch 1, query 0 did not change"):
        changed(SAME, answer(still), ALL, "")


@pytest.mark.parametrize("comparator", [unchanged, changed])
def test_no_row_shows_nothing(comparator: Any) -> None:
    with pytest.raises(Vacuous, match="no output is left"):
        comparator(SAME, answer(PLAIN + 1), ~ALL, "")


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 4, 4), (6, 4), (1, 3, 4)])
def test_another_shape_is_a_failure(shape: tuple[int, ...]) -> None:
    other = answer(torch.ones(shape))
    for comparator in (unchanged, changed):
        with pytest.raises(Failure, match="gave outputs"):
            comparator(SAME, other, ALL, "")
    with pytest.raises(Failure, match="has shape"):
        close(other, PLAIN, 1e9, "")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_finite(value: float) -> None:
    with pytest.raises(Failure, match="batch 1, query 2 is not finite"):
        finite(with_value(value))


def test_close_judges_each_element_and_not_the_mean() -> None:
    with pytest.raises(Failure, match=r"output\[1, 2, 3\].*the most of 1 of 6 queries"):
        close(with_value(24.2), PLAIN, 0.1, "")


def test_a_bound_that_is_no_number_lets_nothing_pass() -> None:
    with pytest.raises(Failure):
        close(SAME, PLAIN + 1, torch.nan, "")


def test_what_is_no_answer() -> None:
    inputs = SUBJECT.draw(CASE)
    with pytest.raises(Failure, match="the call raised ValueError: no"):
        answered(Refusal(ValueError("no"), inputs, None, CASE, SUBJECT))
    with pytest.raises(Inapplicable, match="no way"):
        answered(Refusal(Refused("no way"), inputs, None, CASE, SUBJECT))
    with pytest.raises(Inapplicable, match=r"see contract\.shape"):
        answered(answer(torch.ones(2, 4, 4)))


def test_no_comparator_gives_a_bool_that_could_be_forgotten() -> None:
    functions = [f for _, f in inspect.getmembers(compare, inspect.isfunction) if f.__module__ == compare.__name__]
    assert len(functions) >= 8
    assert not [f.__name__ for f in functions if "bool" in str(f.__annotations__["return"])]
