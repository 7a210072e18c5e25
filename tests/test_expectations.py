"""`--target-expect`: strict, so that the file never says more than is true."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attncheck.engine import Expectation, Target
from attncheck.expectations import Rule, foreseen, read
from attncheck.settings import Request
from attncheck.valid import BadSetting

IDS = ["causal.future-edit", "mask.padding", "mask.polarity"]
ENTRY = '[[expect]]\ncheck = "mask.*"\ntarget = "m.*"\nreason = "known"\n'
Reader = Callable[[str], list[Rule]]


@pytest.fixture
def rules(tmp_path: Path) -> Reader:
    def reading(text: str) -> list[Rule]:
        (tmp_path / "known.toml").write_text(text)
        return read(tmp_path / "known.toml", IDS, datetime.date(2026, 6, 1))

    return reading


def expected(rules: list[Rule], spec: str = "m.A", **request: str) -> list[Expectation]:
    return foreseen(rules, Target(spec, "attention", ""), Request(spec, **request))  # type: ignore[arg-type]


def test_an_entry_expects_each_check_that_it_matches(rules: Reader) -> None:
    found = expected(rules(ENTRY + 'issue = "https://example.org/1"\nexpires = 2026-06-01\n'))
    assert found == [Expectation(id, "known", "https://example.org/1") for id in ("mask.padding", "mask.polarity")]
    assert all(e.strict for e in found)


def test_an_empty_file_expects_nothing(rules: Reader) -> None:
    assert rules("") == []


@pytest.mark.parametrize(("spec", "hit"), [("m.A", True), ("n.A", False), ("m.A[wide]", True)])
def test_the_target_is_a_glob(rules: Reader, spec: str, hit: bool) -> None:
    assert bool(expected(rules(ENTRY), spec)) is hit


def test_a_bracket_is_the_name_of_a_configuration(rules: Reader) -> None:
    found = rules(ENTRY.replace("m.*", "m.A[wide]"))
    assert expected(found, "m.A[wide]") and not expected(found, "m.Aw")


@pytest.mark.parametrize(
    ("when", "hit"),
    [
        ('torch = ">=2.0"', True),
        ('torch = "<2.0"', False),
        (f'torch = "=={torch.__version__.partition("+")[0]}"', True),
        ('device = "cpu"', True),
        ('device = "cuda"', False),
        ('dtype = "float16"', True),
        ('dtype = "float64"', False),
        ('torch = ">=2.0", dtype = "float64"', False),
    ],
)
def test_conditions(rules: Reader, when: str, hit: bool) -> None:
    assert bool(expected(rules(ENTRY + f"when = {{ {when} }}\n"), dtype="float16")) is hit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace("mask.*", "mask.polarty"), "'mask.polarty' matches no check; did you mean 'mask.polarity'?"),
        (ENTRY.replace("reason", "reson"), "key='reson' is not known; did you mean 'reason'?"),
        (ENTRY.replace('"known"', '" "'), "reason=' ': expected a text"),
        ('[[expect]]\ncheck = "mask.*"\nreason = "x"\n', "target=None: expected a text"),
        (ENTRY + "expires = 2026-05-31\n", "expired on 2026-05-31"),
        (ENTRY + 'expires = "2026-05-31"\n', "expected a date"),
        (ENTRY + 'when = { tort = ">=2" }\n', "did you mean 'torch'?"),
        (ENTRY + 'when = { torch = "2.5 or so" }\n', "expected versions, as '>=2.5'"),
        (ENTRY + 'when = { dtype = "float" }\n', "when.dtype='float' is not known"),
        (ENTRY + 'when = "torch>2"\n', "expected a table"),
        (ENTRY + "when = { device = 1 }\n", "expected a text"),
        (ENTRY.replace("expect]]", "expects]]"), "did you mean 'expect'?"),
        ("expect = 1\n", "expected tables headed [[expect]]"),
        ("expect = [\n", "known.toml"),
    ],
)
def test_what_cannot_be_meant_is_refused(rules: Reader, text: str, message: str) -> None:
    with pytest.raises(BadSetting) as refused:
        rules(text)
    assert message in str(refused.value)


def test_a_second_entry_is_named_by_its_number(rules: Reader) -> None:
    with pytest.raises(BadSetting, match=r"known.toml: \[\[expect\]\] 2: "):
        rules(ENTRY + ENTRY.replace("mask.*", "nothing"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="No such file"):
        read(tmp_path / "no.toml", IDS)
