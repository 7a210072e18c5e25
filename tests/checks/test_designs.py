"""Sound designs other than the plain one: no finding, with the declarations that the contract asks of them."""

from pathlib import Path

import pytest

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request

FILE = Path(__file__).parents[1] / "designs" / "designs.py"
DECLARED: dict[str, dict[str, str]] = {
    "Plain": {}, "QKNorm": {}, "SoftCap": {}, "Alibi": {}, "RelativeBias": {}, "Rotary": {}, "TalkingHeads": {},
    "Sink": {"weight_sum": "below-one"}, "OffByOne": {"weight_sum": "below-one"}, "ZeroInitialised": {}, "Only4D": {},
    "NullKey": {}, "PrefixLM": {}, "SlidingWindow": {}, "Double": {}, "OtherMemoryWidth": {}, "HardCodedDropout": {},
}  # fmt: skip
FINE = ("passed", "inapplicable", "xfailed")


@pytest.mark.parametrize("name", DECLARED)
def test_no_finding_on_a_sound_design(name: str) -> None:
    target = wiring.prepare(Request(f"{FILE}:{name}", declare=DECLARED[name]), [])
    assert target.error is None, target.error
    results = [engine.run(check, target) for check in checks_of(target.kind)]
    told = {r.check: r.finding.evidence if r.finding else r.reason for r in results if r.status not in FINE}
    assert not told
    assert sum(r.status == "passed" for r in results) >= 5


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
    target = wiring.prepare(Request(f"{FILE}:{name}"), [])
    assert target.conventions[key].value == value
    assert target.conventions[key].source == "observed"
    assert target.conventions[key].evidence
