"""Sound designs other than the plain one: no finding, with the declarations that the contract asks of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request

FILES = sorted((Path(__file__).parents[1] / "designs").glob("*.py"))
BELOW_ONE, ANY, PER_HEAD = {"weight_sum": "below-one"}, {"weight_sum": "any"}, {"weights": "per-head"}
SCORES = {
    "QKNorm": {"scale": "learned"}, "LearnedScale": {"scale": "learned"}, "MuP": {"scale": "1/d"}, "T5": {"scale": "1"},
    "SoftCap": {}, "CausalSoftCap": {"softcap": "5"}, "Alibi": {}, "CausalAlibi": {}, "RelativeBias": {}, "Rotary": {},
    "RmsQKNorm": {}, "TalkingHeads": {}, "NullKey": {}, "GatedHeads": {}, "Sink": BELOW_ONE, "OffByOne": BELOW_ONE,
    "Differential": ANY, "SigmoidWeights": ANY,
}  # fmt: skip
SIZES = {
    "Plain": {}, "WideValues": {}, "GroupedQuery": {}, "MultiQuery": {}, "SharedKeyValue": {}, "SequenceFirst": {},
    "CrossOnly": {}, "OtherMemoryWidth": {}, "Double": {}, "ZeroInitialised": {},
    "AveragedWeights": {"weights": "averaged"}, "InADict": PER_HEAD, "InANamedTuple": PER_HEAD,
    "InADataclass": PER_HEAD,
}  # fmt: skip
MASKS = {
    "DeadNaN": {"fully_masked": "nan"}, "DeadZero": {"fully_masked": "zero"},
    "DeadUniform": {"fully_masked": "uniform"}, "DeadRefused": {"fully_masked": "raise"},
    "OneMaskASample": {}, "IntegerPadding": {"padding_mask": "real"},
    "Only4D": {}, "LocalWindow": {"window": "-2:2"}, "SlidingWindow": {}, "PrefixLM": {}, "HardCodedDropout": {},
}  # fmt: skip
EXECUTION = {
    "Checkpointed": {}, "QueryChunks": {}, "OnlineSoftmax": {"fully_masked": "zero"}, "KVCache": {"stateful": "reset"},
}  # fmt: skip
DECLARED: dict[str, dict[str, str]] = SCORES | SIZES | MASKS | EXECUTION
PLANS = [(name, "default") for name in DECLARED] + [(name, "deep") for name in list(DECLARED)[::18]]
# A prefix and a module of torch with a fixed inner width are not read; nor are scores of other kinds.
UNREAD = {"PrefixLM"}
READ = ["LearnedScale", "MuP", *(name for name in (SIZES | MASKS | EXECUTION) if name not in UNREAD)]
FINE = ("passed", "inapplicable", "xfailed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny calls stall on more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prepared(name: str, **request: Any) -> engine.Target:
    file = next(f for f in FILES if f"\nclass {name}(" in f.read_text())
    target = wiring.prepare(Request(f"{file}:{name}", **request), [])
    assert target.error is None, target.error
    return target


def results_of(target: engine.Target, profile: str = "default") -> dict[str, engine.Result]:
    """The result of each check, none of them a finding."""
    results = {check.id: engine.run(check, target, profile) for check in checks_of(target.kind)}
    told = {id: r.finding.evidence if r.finding else r.reason for id, r in results.items() if r.status not in FINE}
    assert not told
    return results


@pytest.mark.parametrize(("name", "profile"), PLANS)
def test_no_finding_on_a_sound_design(name: str, profile: str) -> None:
    results = results_of(prepared(name, declare=DECLARED[name]), profile)
    assert sum(r.status == "passed" for r in results.values()) >= 5
    assert results["numeric.oracle"].status == "passed" or name not in READ


def test_no_finding_on_heads_of_odd_width() -> None:
    results = results_of(prepared("Plain", init={"dim": 15, "num_heads": 3}))
    assert results["numeric.oracle"].status == "passed"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("PrefixLM", "causal", "prefix:3"), ("SlidingWindow", "window", "7"), ("SlidingWindow", "causal", "top-left"),
        ("Rotary", "positions", "relative"), ("Double", "dtype", "float64"), ("Plain", "mask", "allowed"),
        ("HardCodedDropout", "padding_mask", "padding"), ("HardCodedDropout", "weights", "averaged"),
        ("Plain", "positions", "none"), ("Plain", "causal", "no"), ("Plain", "layout", "batch-first"),
    ],
)  # fmt: skip
def test_observed_convention(name: str, key: str, value: str) -> None:
    target = prepared(name)
    assert target.conventions[key].value == value
    assert target.conventions[key].source == "observed"
    assert target.conventions[key].evidence


@pytest.mark.parametrize(("name", "read"), [("Plain", True), ("QKNorm", True), ("Differential", False)])
def test_the_header_says_where_no_reference_could_be_had(name: str, read: bool) -> None:
    assert any(note.startswith(wiring.UNREAD) for note in prepared(name).notes) != read
