"""Classes in the styles of public code, met without configuration: built, called, understood, and broken on purpose."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck.settings import Request

HERE = Path(__file__).parent
STRANGERS: list[dict[str, Any]] = tomllib.loads((HERE / "index.toml").read_text(encoding="utf-8"))["stranger"]
CALLED = [s for s in STRANGERS if "refused" not in s]
BROKEN = [s for s in CALLED if "unseen" not in s["fault"]]
FINE = ("passed", "inapplicable", "xfailed")


def met(file: Path, stranger: dict[str, Any]) -> engine.Target:
    declare = {k: str(v) for k, v in stranger.get("declared", {}).items()}
    target = wiring.prepare(Request(f"{file}:{stranger['name']}", init=stranger.get("init"), declare=declare), [])
    assert target.error is None, target.error
    return target


def names(strangers: list[dict[str, Any]]) -> list[str]:
    return [s["file"].removesuffix(".py") for s in strangers]


@pytest.mark.parametrize("stranger", CALLED, ids=names(CALLED))
def test_a_stranger_is_understood_and_not_accused(stranger: dict[str, Any]) -> None:
    target = met(HERE / stranger["file"], stranger)
    if stranger.get("family", True):
        assert (target.oracles[0] is None) == ("unread" in stranger)
    said = {key: c.value for key, c in target.subjects[0].conventions.items() if c.value is not None}
    truth = {key: str(value) for key, value in stranger["truth"].items()}
    wrong = {key: (value, said[key]) for key, value in truth.items() if said.get(key, value) != value}
    assert not wrong
    results = [engine.run(check, target, "quick") for check in checks_of(target.kind)]
    told = {r.check: r.finding.evidence if r.finding else r.reason for r in results if r.status not in FINE}
    assert set(told) <= set(stranger.get("findings", [])), told


@pytest.mark.parametrize("stranger", BROKEN, ids=names(BROKEN))
def test_its_fault_is_found(stranger: dict[str, Any], tmp_path: Path) -> None:
    fault, source = stranger["fault"], (HERE / stranger["file"]).read_text(encoding="utf-8")
    assert source.count(fault["old"]) == 1
    assert fault["by"] not in stranger.get("findings", [])
    file = tmp_path / f"broken_{stranger['file']}"
    file.write_text(source.replace(fault["old"], fault["new"]), encoding="utf-8")
    target = met(file, stranger)
    check = next(c for c in checks_of(target.kind) if c.id == fault["by"])
    assert engine.fails(check, target, fault.get("profile", "quick"))


def test_how_many_are_reached() -> None:
    """At least 80 styles, 95 % called, 85 % read, the faults of 90 % found."""
    n = len(STRANGERS)
    read = [s for s in CALLED if s.get("family", True) and "unread" not in s]
    assert n >= 80
    assert len(CALLED) >= 0.95 * n
    assert len(read) >= 0.85 * n
    assert len(BROKEN) >= 0.9 * n
