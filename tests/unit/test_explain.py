"""The likely cause of a finding: named by outputs, by exact evidence, or by being the only one in like words."""

from collections.abc import Callable
from typing import Any

import pytest

from attncheck import wiring
from attncheck.compare import Failure
from attncheck.explain import UNKNOWN, breaks_alike, kind_of, likely_cause
from attncheck.finding import Cause
from attncheck.subject import Answer, Case, Refusal, Subject
from attncheck_faults import faults

CASE = Case("self", 2, 3, 3, options={"weights": True, "mask": "bool"})
EVIDENCE = "the output[0, 2] is off by 0.5 (bound 1e-06)"
LIKE = "the output[1, 0] is off by 0.25 (bound 2e-06)"
OTHER = "the output is not finite"
HALVED, NEVER, KEEPS = (faults()[f] for f in ("dropout.halved-rate", "dropout.never", "dropout.keeps-instead"))
SQUARED = faults()["scale.by-model-width"]


@pytest.fixture
def subject() -> Subject:
    """Without a fault that outputs show."""
    return wiring.faulty_target().subjects[0]


def answer(s: Subject) -> Answer:
    given = s.attempt(s.draw(CASE), None, CASE)
    assert isinstance(given, Answer), given
    return given


def refusal(s: Subject) -> Refusal:
    return Refusal(ValueError("no"), s.draw(CASE), None, CASE, s)


def said(**by_fault: str) -> Callable[[Subject, Subject], str | None]:
    """What the check says of the twin with a fault."""
    return lambda twin, sound: by_fault.get(twin.adapter.module.fault.replace(".", "_").replace("-", "_"))


def cause_of(s: Subject, before: Any, killers: list[Any], finds: Any, known: list[Any] | None = None) -> Cause:
    failure = Failure(EVIDENCE, before)
    return likely_cause(s, failure, CASE, killers if known is None else known, killers, wiring.oracle_for, finds)


@pytest.mark.parametrize("called", [answer, refusal])
def test_several_faults_in_like_words_name_none_and_are_listed(called: Any, subject: Subject) -> None:
    finds = said(dropout_halved_rate=LIKE, dropout_never=OTHER, dropout_keeps_instead=LIKE)
    cause = cause_of(subject, called(subject), [HALVED, NEVER, KEEPS], finds)
    listed = "the check fails in like words with dropout.halved-rate, dropout.keeps-instead"
    assert cause == Cause(None, f"{UNKNOWN}; {listed}")


@pytest.mark.parametrize("called", [answer, refusal])
def test_the_same_evidence_names_one_of_several(called: Any, subject: Subject) -> None:
    finds = said(dropout_halved_rate=LIKE, dropout_never=LIKE, dropout_keeps_instead=EVIDENCE)
    cause = cause_of(subject, called(subject), [HALVED, NEVER, KEEPS], finds)
    assert cause.fault == "dropout.keeps-instead"
    assert cause.text == f"{KEEPS.summary} (dropout.keeps-instead): the check fails in the same way with it"


def test_the_only_one_in_like_words_is_told_and_not_named(subject: Subject) -> None:
    finds = said(dropout_halved_rate=OTHER, dropout_never=LIKE)
    cause = cause_of(subject, answer(subject), [HALVED, NEVER, KEEPS], finds)
    assert cause.fault is None
    assert cause.text == f"{UNKNOWN}; the check fails in like words with dropout.never"


def test_nothing_alike_names_nothing(subject: Subject) -> None:
    assert cause_of(subject, answer(subject), [HALVED, NEVER], said(dropout_never=OTHER)) == Cause(None, UNKNOWN)


@pytest.fixture
def wrong() -> Subject:
    """With a fault that outputs show."""
    return wiring.faulty_target(SQUARED).subjects[0]


def test_the_same_outputs_name_a_fault_before_any_words(wrong: Subject) -> None:
    cause = cause_of(wrong, answer(wrong), [HALVED], said(dropout_halved_rate=EVIDENCE), [HALVED, SQUARED])
    assert cause.fault == SQUARED.id
    assert cause.text == f"{SQUARED.summary} ({SQUARED.id}): gives the same outputs on the same weights"


def test_a_refused_call_is_not_explained_by_outputs(wrong: Subject) -> None:
    """Other calls do show the fault; they need not show why this one raised."""
    asked: list[Any] = []

    def build(s: Subject, fault: Any = None, **settings: Any) -> Subject | None:
        asked.append(fault)
        return wiring.oracle_for(s, fault, **settings)

    failure = Failure("the call raised ValueError: no", refusal(wrong))
    cause = likely_cause(wrong, failure, CASE, [SQUARED], [HALVED], build, lambda *_: None)
    assert cause == Cause(None, UNKNOWN)
    assert asked == [None, HALVED]


def test_where_outputs_show_it_like_words_are_not_enough(wrong: Subject) -> None:
    """But the same words, number for number, are, of a fault that outputs need not show."""
    state = next(f for f in faults().values() if f.family == "state" and not f.init and not f.path)
    told = state.id.replace(".", "_").replace("-", "_")
    assert cause_of(wrong, answer(wrong), [state], said(**{told: LIKE}), []).fault is None
    assert cause_of(wrong, answer(wrong), [state], said(**{told: EVIDENCE}), []).fault == state.id
    assert cause_of(wrong, answer(wrong), [HALVED], said(dropout_halved_rate=EVIDENCE), []).fault is None


def test_a_scale_that_no_fault_has_is_told_with_its_declaration() -> None:
    s = wiring.faulty_target(scale=0.9).subjects[0]
    cause = cause_of(s, answer(s), [SQUARED], said(), [SQUARED])
    assert cause.fault is None
    assert cause.text == "the scores are scaled by 0.9, where 1/sqrt(d) is 0.4082; if it is meant, declare scale=0.9"


def test_without_shared_weights_nothing_is_looked_for(subject: Subject) -> None:
    failure = Failure(EVIDENCE, answer(subject))
    cause = likely_cause(subject, failure, CASE, [SQUARED], [SQUARED], lambda *_, **__: None, said())
    assert cause == Cause()
    assert cause.text.startswith("not looked for")


def test_words_are_compared_without_numbers_places_and_what_stands_in_brackets() -> None:
    assert kind_of(EVIDENCE) == kind_of(LIKE) != kind_of(OTHER)
    assert kind_of("12 of 40 (bound 1e-3)") == kind_of("3 of 2048 (bound 7)") != kind_of("3 in 2048")
    assert kind_of(None) is None


def test_a_twin_in_another_dtype_breaks_alike_where_the_same_outputs_are_not_finite(subject: Subject) -> None:
    huge = subject.draw(CASE).scaled(1e3)
    unstable = wiring.oracle_for(subject, faults()["softmax.unstable"])
    sound = wiring.oracle_for(subject)
    broken = wiring.faulty_target(faults()["softmax.unstable"]).subjects[0].attempt(huge, None, CASE)
    assert isinstance(broken, Answer) and not broken.out.isfinite().all()
    assert breaks_alike(unstable, sound, Failure(OTHER, broken))
    assert not breaks_alike(sound, sound, Failure(OTHER, broken))
    assert not breaks_alike(unstable, sound, Failure(OTHER, answer(subject)))
