"""The walk over the cases of a check: what is judged, what is passed over, and what a check that shows nothing is."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.compare import Inapplicable, Rounding, Vacuous, fail
from attncheck.engine import Expectation, Result, Target, run
from attncheck.registry import Check
from attncheck.subject import Answer, Case, Subject, subject_of

PROFILES = ("quick", "default", "deep")


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, None]:
    return q + v.mean(-2, keepdim=True), None


def walked(body: Any, profile: str = "default", expected: Any = (), where: Any = None, **told: Any) -> Result:
    subject = subject_of(SimpleNamespace(width=4, call=attend, **{"sources": ("separate",), **told}), "attention")
    target = Target("m.A", "attention", "", [subject], [None], expectations=list(expected))
    axes = {"mask": ("N1TS",)} if "masks" in told else {}
    check = Check("a.b", body, ("attention",), ("f",), axes=axes, where=where)
    return run(check, target, profile)


def raising(error: Exception, when: Any = lambda case: True) -> Any:
    def body(subject: Subject, case: Case, oracle: None) -> None:
        if when(case):
            raise error

    return body


def broken(subject: Subject, case: Case, oracle: None) -> None:
    answer = subject.attempt(subject.draw(case), None, case)
    assert isinstance(answer, Answer)
    if case.T > 1 and case.S > 2:
        fail("too long", answer)


@pytest.mark.parametrize("profile", PROFILES)
def test_silence_is_passed(profile: str) -> None:
    assert walked(lambda subject, case, oracle: None, profile).status == "passed"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_failure_is_a_finding_made_small(profile: str) -> None:
    result = walked(broken, profile)
    assert (result.status, result.finding.evidence) == ("failed", "too long")
    assert {k: result.finding.case[k] for k in ("N", "T", "S", "mode", "strided")} == {
        "N": 1, "T": 2, "S": 3, "mode": "eval", "strided": False,
    }  # fmt: skip


STATUSES = [
    (Vacuous("shows nothing"), "error", "its premise never held in"),
    (Inapplicable("cannot"), "inapplicable", "cannot"),
    (Rounding("1e-7"), "passed", "1e-7"),
    (RuntimeError("a bug of ours"), "error", "the check broke in"),
]


@pytest.mark.parametrize(("error", "status", "text"), STATUSES, ids=lambda x: type(x).__name__)
def test_what_a_check_raises(error: Exception, status: str, text: str) -> None:
    result = walked(raising(error))
    assert result.status == status
    assert text in str(result.reason)


@pytest.mark.parametrize("error", [Vacuous("v"), Inapplicable("i")])
def test_one_case_that_shows_something_is_enough(error: Exception) -> None:
    assert walked(raising(error, lambda case: case.T > 1)).status == "passed"


@pytest.mark.parametrize("profile", PROFILES)
def test_no_case_is_inapplicable(profile: str) -> None:
    """Where no mask of the check is one that the target takes, or no size suits."""
    for told in ({"masks": ("TS",)}, {"where": lambda case: False}):
        result = walked(broken, profile, **told)
        assert (result.status, result.reason) == ("inapplicable", "no case fits this target")


def test_what_the_target_itself_leaves_without_a_key_is_not_judged() -> None:
    sizes: list[tuple[int, int]] = []

    def body(subject: Subject, case: Case, oracle: None) -> None:
        sizes.append((case.T, case.S))

    assert walked(body, "deep", conventions={"causal": "bottom-right"}).status == "passed"
    assert sizes
    assert all(T <= S for T, S in sizes)


def test_expectations() -> None:
    known, loose = Expectation("a.b", "known"), Expectation("a.b", "known", strict=False)
    assert walked(broken, expected=[known]).status == "xfailed"
    assert walked(lambda *_: None, expected=[known]).status == "xpassed"
    assert walked(lambda *_: None, expected=[loose]).status == "passed"
    assert walked(broken, expected=[Expectation("a.c", "another")]).status == "failed"
    assert walked(raising(RuntimeError()), expected=[known]).status == "error"


def test_the_caller_s_random_state_and_warnings_are_kept() -> None:
    state = torch.get_rng_state()

    def body(subject: Subject, case: Case, oracle: None) -> None:
        import warnings

        torch.rand(3)
        warnings.warn("the target's own", stacklevel=1)

    assert walked(body).status == "passed"
    assert torch.equal(torch.get_rng_state(), state)
