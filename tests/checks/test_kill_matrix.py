"""Every check passes the sound reference and fails each of its faults; every fault has a check that catches it."""

import functools

import pytest

from attncheck import engine, wiring
from attncheck.registry import Check, checks_of
from attncheck_faults import faults

CHECKS = checks_of("attention")
PAIRS = [(check, fault) for check in CHECKS for fault in check.faults]
# Faults that no output, weight or refusal tells apart from the one that is named first.
TWINS = {
    "dropout.never": {"dropout.off-after-eval"},
    "projection.value-is-key": {"projection.value-from-key"},
    # The call changes what it is given, so that later calls no longer say what the first one did.
    "inputs.query-scaled-in-place": {None},
    "inputs.mask-inverted-in-place": {None},
    "inputs.parameter-decays": {None},
    # The reference with this fault is copied itself on the way.
    "state.copy-forgets-causality": {None},
    # Its numbers depend on the weights that a new instance is built with.
    "state.not-saved": {None},
}


@functools.cache
def broken(fault: str) -> engine.Target:
    return wiring.faulty_target(faults()[fault])


@functools.cache
def sound(init: tuple[tuple[str, object], ...]) -> engine.Target:
    return wiring.faulty_target(**dict(init))


@pytest.mark.parametrize(("check", "fault"), PAIRS, ids=[f"{c.id}-{f}" for c, f in PAIRS])
def test_check_fails_its_fault_and_names_it(check: Check, fault: str) -> None:
    # A fault may change its module, so that each run gets a fresh one.
    result = engine.run(check, wiring.faulty_target(faults()[fault]), wiring.effort(check, True))
    assert result.status == "failed", result
    assert result.finding is not None
    assert result.finding.fault in {fault} | TWINS.get(fault, set()), result.finding.likely_cause


SETTINGS = [
    {}, {"causal": True}, {"kv_heads": 2}, {"dead_rows": "uniform"}, {"dead_rows": "nan"}, {"window": (-2, 1)},
    {"causal": True, "window": (-2, 0)}, {"causal": True, "corner": "bottom-right"}, {"extra_keys": 1},
]  # fmt: skip
# What the plain reference has not: a window, positions, fewer key heads.
NOT_ASKED = {"causal.window", "symmetry.positions-matter", "heads.order"}


@pytest.mark.parametrize("init", SETTINGS, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_check_passes_the_sound_reference(check: Check, init: dict[str, object]) -> None:
    result = engine.run(check, sound(tuple(init.items())))
    assert result.status in ("passed", "inapplicable"), (result, result.finding and result.finding.evidence)


def test_each_check_applies_to_the_plain_reference() -> None:
    statuses = {check.id: engine.run(check, sound(()), "quick").status for check in CHECKS if check.profile == "quick"}
    assert {id for id, status in statuses.items() if status != "passed"} == NOT_ASKED
    assert {statuses[id] for id in NOT_ASKED} == {"inapplicable"}


def test_each_fault_is_named_by_a_check() -> None:
    assert not set(faults()) - {fault for _, fault in PAIRS}


def test_no_check_names_an_unknown_fault() -> None:
    assert not {fault for _, fault in PAIRS} - set(faults())


@pytest.mark.parametrize("profile", ["quick", "deep"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_other_profiles_pass_the_sound_reference(check: Check, profile: str) -> None:
    result = engine.run(check, sound(()), profile)
    expected = "inapplicable" if check.id in NOT_ASKED or profile == "quick" != check.profile else "passed"
    assert result.status == expected, (result, result.finding and result.finding.evidence)


KERNEL_CHECKS = checks_of("kernel")
KERNEL_PAIRS = [(c, f) for c in KERNEL_CHECKS for f in c.faults if "kernel" in faults()[f].kinds]


@pytest.mark.parametrize(("check", "fault"), KERNEL_PAIRS, ids=[f"{c.id}-{f}" for c, f in KERNEL_PAIRS])
def test_check_fails_its_fault_in_a_kernel(check: Check, fault: str) -> None:
    assert engine.fails(check, wiring.faulty_target(faults()[fault], "kernel"), wiring.effort(check, True))


@pytest.mark.parametrize("init", [{}, {"causal": True}, {"window": (-2, 0)}], ids=str)
@pytest.mark.parametrize("check", KERNEL_CHECKS, ids=lambda c: c.id)
def test_check_passes_the_sound_kernel(check: Check, init: dict[str, object]) -> None:
    result = engine.run(check, wiring.faulty_target(kind="kernel", **init))
    assert result.status in ("passed", "inapplicable"), (result, result.finding and result.finding.evidence)
