"""Classes by authors who never saw the checks: no finding on a sound one, one on a faulty one, no configuration."""

import ast
from pathlib import Path

import pytest

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request

TESTS = Path(__file__).parents[1]
SOUND = sorted([*TESTS.glob("sound/*.py"), *TESTS.glob("pairs/sound_*.py")])
FAULTY = sorted([*TESTS.glob("pairs/fault_*.py"), *TESTS.glob("faulty/*.py")])
# What the contract asks the author of a sound class to declare.
DECLARED = {
    "off_by_one_function": {"weight_sum": "below-one"},
}
# What the checks of today cannot see, and why.
UNSEEN = {
    "fault_16_encoder_bmm": "batch taken for time is the legal layout seq-first, until batch-first is declared",
    "fault_22_kv_cache": "shows only with a cache, which this kind does not call",
    "fault_24_local_window": "a window to both sides is legal, until causality is declared",
    "fault_04": "shows only with a cache",
}


def spec_of(file: Path) -> str:
    """The attention is the last class or function of its file."""
    named = (ast.ClassDef, ast.FunctionDef)
    return f"{file}:{[n.name for n in ast.parse(file.read_text()).body if isinstance(n, named)][-1]}"


def results_of(file: Path, profile: str = "default", **declare: str) -> tuple[engine.Target, list[engine.Result]]:
    declare = DECLARED.get(file.stem, {}) | declare
    target = wiring.prepare(Request(spec_of(file), declare=declare), [])
    assert target.error is None, target.error
    return target, [engine.run(check, target, profile) for check in checks_of(target.kind)]


PLANS = [(file, "default") for file in SOUND] + [(file, "deep") for file in SOUND[::21]]


@pytest.mark.parametrize(("file", "profile"), PLANS, ids=[f"{f.parent.name}-{f.stem}-{p}" for f, p in PLANS])
def test_no_finding_on_a_sound_class(file: Path, profile: str) -> None:
    _, results = results_of(file, profile)
    told = {r.check: r.finding.evidence if r.finding else r.reason for r in results if r.status not in FINE}
    assert not told
    assert sum(r.status == "passed" for r in results) >= 5


FINE = ("passed", "inapplicable", "xfailed")


@pytest.mark.parametrize("file", FAULTY, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_a_finding_on_a_faulty_class(file: Path) -> None:
    target = wiring.prepare(Request(spec_of(file), declare=DECLARED.get(file.stem, {})), [])
    assert target.error is None, target.error
    found = next((c.id for c in checks_of(target.kind) if engine.fails(c, target)), None)
    assert (found is not None) != (file.stem in UNSEEN), found


def test_declared_layout_shows_the_batch_taken_for_time() -> None:
    file = TESTS / "pairs" / "fault_16_encoder_bmm.py"
    _, results = results_of(file, layout="batch-first")
    assert "symmetry.batch" in [r.check for r in results if r.status == "failed"]


def test_declared_causality_shows_the_window_to_both_sides() -> None:
    file = TESTS / "pairs" / "fault_24_local_window.py"
    _, results = results_of(file, causal="top-left")
    assert "causal.future-edit" in [r.check for r in results if r.status == "failed"]


def test_declared_causality_tells_of_the_head_that_sees_the_future() -> None:
    _, results = results_of(TESTS / "faulty" / "fault_18.py", causal="top-left")
    assert "causal.future-edit" in [r.check for r in results if r.status == "failed"]


# Outside of the family of the reference: another softmax, mixing of heads.
NOT_READ = {"off_by_one_function", "talking_heads_cait"}


READ = [f for f in SOUND if f.parent.name == "sound" and f.stem not in NOT_READ]


@pytest.mark.parametrize("file", READ, ids=lambda f: f.stem)
def test_the_oracle_is_found(file: Path) -> None:
    target = wiring.prepare(Request(spec_of(file), declare=DECLARED.get(file.stem, {})), [])
    assert all(oracle is not None for oracle in target.oracles)
