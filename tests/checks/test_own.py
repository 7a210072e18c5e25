"""A check and a fault of the user's own: the one catches the other, and a finding on a foreign class names the fault.

N batch, T queries, S keys
"""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import attncheck
import attncheck_faults
from attncheck import engine, registry, wiring
from attncheck.compare import answered, close, tolerance_of
from attncheck.registry import CHECKS, Check
from attncheck.settings import Request
from attncheck.subject import Case, Subject
from attncheck_faults import Fault, record


class Own(NamedTuple):
    fault: Fault
    check: Check


@pytest.fixture
def own(loaded: None, monkeypatch: pytest.MonkeyPatch) -> Own:
    """Registered in copies of the registries, which are the test's alone."""
    monkeypatch.setattr(record, "FAULTS", dict(record.FAULTS))
    monkeypatch.setattr(registry, "CHECKS", dict(registry.CHECKS))

    @attncheck_faults.fault("mine.first-key-twice", step="mix")
    def first_key_twice(m: Any, sound: Any, weights: Tensor, v: Tensor) -> Tensor:
        """The first key is counted twice"""
        return sound(weights, v) + weights[..., :1] @ v[..., :1, :]  # type: ignore[no-any-return]

    @attncheck.check("mine.one-key-repeated", faults=("mine.first-key-twice",), where=lambda case: case.S > 1)
    def one_key_repeated(subject: Subject, case: Case, oracle: Subject | None) -> None:
        """A key and its value that are repeated give the same output as any other number of them."""
        one = subject.draw(case).reindexed([0] * case.S, -2, "query key value" if case.tied else "key value")
        before = answered(subject.attempt(one, None, case))
        less = case.but(S=case.S - 1, T=case.T - case.tied)
        fewer = one.cut("key value", -2, case.S - 1)
        after = answered(subject.attempt(fewer, None, less))
        length = after.out.shape[-2]
        same = (before, f"before[..., :{length}, :]")
        close(after, before.narrowed(0, length).out, tolerance_of(before), "one key less", same)

    return Own(first_key_twice, registry.CHECKS["mine.one-key-repeated"])


class Attention(nn.Module):
    """One head; `twice` counts the first key twice."""

    def __init__(self, d_model: int, twice: bool) -> None:
        super().__init__()
        self.twice = twice
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5).softmax(-1)
        v = self.v(x)
        first = weights[..., :1] @ v[..., :1, :] if self.twice else 0.0
        return self.o(weights @ v + first)  # type: ignore[no-any-return]


class Right(Attention):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, False)


class Twice(Attention):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, True)


def test_the_check_fails_the_fault_and_names_it_and_passes_the_reference(own: Own) -> None:
    result = engine.run(own.check, wiring.faulty_target(own.fault))
    assert (result.status, result.finding.fault) == ("failed", "mine.first-key-twice")
    assert result.finding.likely_cause.startswith("The first key is counted twice (mine.first-key-twice): ")
    assert result.finding.claim.startswith("A key and its value that are repeated")
    assert engine.run(own.check, wiring.faulty_target()).status == "passed"


def test_the_kill_matrix_has_a_row_for_it(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = (own.check.id, "numeric.oracle", "contract.inputs-untouched")
    monkeypatch.setattr(registry, "CHECKS", {id: registry.CHECKS[id] for id in ids})
    id, caught, named = wiring.kills("mine.first-key-twice")
    assert (id, named) == ("mine.first-key-twice", [own.check.id])
    assert caught == [own.check.id, "numeric.oracle"]


def test_its_script_fails_with_the_fault_and_passes_without(own: Own) -> None:
    script = engine.run(own.check, wiring.faulty_target(own.fault)).finding.reproduce.partition("\n\n")[2]
    broken = "faults()['mine.first-key-twice'].broken()"
    assert broken in script
    with torch.random.fork_rng(devices=[]):
        with pytest.raises(AssertionError):
            exec(script, {})
        exec(script.replace(broken, "__import__('attncheck_reference').MultiHeadAttention"), {})


@pytest.mark.parametrize("id", ["mine.one-key-repeated", "numeric.oracle"])
def test_a_finding_on_a_foreign_class_names_the_user_s_fault(own: Own, id: str) -> None:
    target = wiring.prepare(Request("m.Twice"), [], Twice)
    assert target.error is None
    assert None not in target.oracles
    result = engine.run(registry.CHECKS[id], target)
    assert (result.status, result.finding.fault) == ("failed", "mine.first-key-twice")
    assert result.finding.likely_cause.endswith("gives the same outputs on the same weights")
    sound = wiring.prepare(Request("m.Right"), [], Right)
    assert engine.run(registry.CHECKS[id], sound).status == "passed"


def test_a_run_of_the_suite_has_the_check(own: Own) -> None:
    report = attncheck.run_checks(Twice, checks=["mine.*"])
    (result,) = report.targets[0].results
    assert not report.ok
    assert (result.check, result.finding["fault"]) == ("mine.one-key-repeated", "mine.first-key-twice")
    assert attncheck.run_checks(Right, checks=["mine.*"]).ok


def test_an_id_is_taken_once(own: Own) -> None:
    with pytest.raises(ValueError, match=r"fault id='mine\.first-key-twice' is taken by"):
        attncheck_faults.fault("mine.first-key-twice", step="mix")
    with pytest.raises(ValueError, match=r"check id='mine\.one-key-repeated' is taken by"):
        attncheck.check("mine.one-key-repeated", faults=("mine.first-key-twice",))
    with pytest.raises(ValueError, match="step='mixed' is no step of the reference"):
        attncheck_faults.fault("mine.other", step="mixed")
    with pytest.raises(TypeError, match="names nothing that it catches"):
        attncheck.check("mine.other", faults=())


def test_nothing_of_it_is_left(loaded: None) -> None:
    assert not [id for id in (*attncheck_faults.faults(), *CHECKS, *registry.CHECKS) if id.startswith("mine.")]
