"""The options of the command line over the table of pyproject.toml."""

from pathlib import Path
from typing import Any

import pytest

from attncheck.declarations import declared
from attncheck.settings import keywords, quoted, selected, settings_of, table_of
from attncheck.valid import BadSetting

TABLE: dict[str, Any] = {
    "profile": "quick",
    "seed": 5,
    "timeout": 7,
    "checks": ["mask.*"],
    "targets": {
        "m.A": {"kind": "kernel", "init": {"d": 8}, "declare": {"mask": "allowed", "causal": "no"}, "seed": 6},
        "m.A[wide]": {"init": {"d": 64}, "checks": ["!numeric.*"]},
    },
}


def test_without_a_table_the_defaults_hold() -> None:
    settings = settings_of({"target": ["m.A"]}, {})
    (request,) = settings.requests
    assert (request.spec, request.init, request.kind, request.declare, request.adapter) == ("m.A", None, None, {}, None)
    assert (request.profile, request.seed, request.timeout, request.device) == ("default", 0, 60.0, "cpu")
    assert (settings.json, settings.expect, settings.min_checks, settings.explain) == (None, None, 0, False)
    assert settings.typed == ""


def test_a_target_wins_over_the_table_and_the_command_line_over_both() -> None:
    first, wide = settings_of({"target": ["configured"]}, TABLE).requests
    assert (first.profile, first.seed, first.timeout) == ("quick", 6, 7.0)
    assert (first.checks, first.init) == (["mask.*"], {"d": 8})
    assert (wide.seed, wide.checks, wide.init) == (5, ["!numeric.*"], {"d": 64})
    options = {"target": ["m.A"], "profile": "deep", "checks": ["a.*"], "init": "d=1", "timeout": 2.5}
    (typed,) = settings_of(options, TABLE).requests
    assert (typed.profile, typed.checks, typed.init, typed.timeout) == ("deep", ["a.*"], {"d": 1}, 2.5)


def test_zero_is_a_value_and_not_the_lack_of_one() -> None:
    settings = settings_of({"target": ["m.A"], "seed": 0, "min_checks": 0}, {**TABLE, "min_checks": 9})
    assert (settings.seed, settings.requests[0].seed, settings.min_checks) == (0, 0, 0)


def test_options_that_were_not_typed_leave_the_table_alone() -> None:
    unset = {"profile": None, "checks": [], "seed": None, "explain": False}
    settings = settings_of({"target": ["m.A"], **unset}, {**TABLE, "explain": True})
    assert (settings.profile, settings.explain, settings.requests[0].checks) == ("quick", True, ["mask.*"])


def test_declarations_are_joined_key_by_key() -> None:
    (request,) = settings_of({"target": ["m.A"], "declare": ["causal=top-left", "heads=4"]}, TABLE).requests
    assert request.declare == {"mask": "allowed", "causal": "top-left", "heads": "4"}


def test_python_gives_mappings() -> None:
    (request,) = settings_of({"target": ["m.A"], "init": {"d": [1]}, "declare": {"heads": 4}}, {}).requests
    assert request.init == {"d": [1]} and request.declare == {"heads": "4"}


def test_a_target_named_twice_is_one() -> None:
    settings = settings_of({"target": ["m.A", "configured", "m.A"]}, TABLE)
    assert [r.spec for r in settings.requests] == ["m.A", "m.A[wide]"]


def test_what_to_type_again() -> None:
    options = {"target": ["m.A"], "init": "a='x', b=2", "seed": 3, "declare": ["mask=allowed"]}
    typed = settings_of({**options, "checks": ["x"], "json": "f"}, {}).typed
    assert typed == """--target-init='a='"'"'x'"'"', b=2' --target-seed=3 --target-declare=mask=allowed"""
    assert quoted("a[b]") == "'a[b]'" and quoted("mask=allowed") == "mask=allowed"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"profile": "fast"}, "target-profile='fast' is not known"),
        ({"kind": "atention"}, "did you mean 'attention'?"),
        ({"dtype": "float"}, "target-dtype='float' is not known"),
        ({"seed": "x"}, "target-seed='x': expected a whole number"),
        ({"seed": True}, "target-seed=True: expected a whole number"),
        ({"timeout": "x"}, "target-timeout='x': expected a number"),
        ({"checks": "mask.*"}, "expected a list of globs"),
        ({"init": "4, 5"}, "expected keywords with Python literals"),
        ({"init": "a=f()"}, "expected keywords with Python literals"),
        ({"init": 3}, "init=3: expected a table"),
        ({"declare": ["x"]}, "expected KEY=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        settings_of({"target": ["m.A"], **options}, {})
    assert text in str(refused.value)


@pytest.mark.parametrize("name", ["init", "kind", "declare", "config"])
def test_some_options_speak_of_one_target(name: str) -> None:
    option = {name: {"init": "a=1", "kind": "kernel", "declare": ["mask=allowed"], "config": "m:C"}[name]}
    with pytest.raises(BadSetting, match=r"speaks of one target, but there are 2; use \[tool.attncheck.targets\]"):
        settings_of({"target": ["m.A", "m.B"], **option}, {})


def test_configurations_must_be_in_the_table() -> None:
    with pytest.raises(BadSetting, match=r"did you mean 'm.A\[wide\]'"):
        settings_of({"target": ["m.A[wid]"]}, TABLE)
    with pytest.raises(BadSetting, match="has no"):
        settings_of({"target": ["configured"]}, {})


def test_keywords_are_literals() -> None:
    assert keywords("a=1, b='x', c=[None, True], d=-0.5") == {"a": 1, "b": "x", "c": [None, True], "d": -0.5}
    assert keywords("") == {}


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ({"mask": "alowed"}, "mask='alowed' is not known; did you mean 'allowed'?"),
        ({"maks": "allowed"}, "did you mean 'mask'?"),
        ({"causal": "prefix:x"}, "expected prefix:K with a number K"),
        ({"window": "wide"}, "expected W, as 4, or L:R, as -2:1"),
    ],
)
def test_declarations_are_checked(pair: dict[str, str], text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        declared(pair)
    assert text in str(refused.value)


def test_legal_declarations() -> None:
    legal = {"causal": "prefix:3", "window": "-2:1", "fully_masked": "raise", "heads": "4", "pad_id": "0"}
    assert declared(legal) == legal
    assert declared({"window": 4}) == {"window": "4"}


IDS = ["causal.future-edit", "mask.padding", "mask.polarity", "numeric.oracle"]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        ([], IDS),
        (["mask.*"], ["mask.padding", "mask.polarity"]),
        (["!numeric.*"], IDS[:3]),
        (["mask.*", "!mask.po*"], ["mask.padding"]),
        (["numeric.oracle", "causal.*"], ["causal.future-edit", "numeric.oracle"]),
    ],
)
def test_globs_choose_checks_in_their_order(globs: list[str], expected: list[str]) -> None:
    assert selected(IDS, globs) == expected


def test_a_glob_that_matches_nothing_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"'mask.polarty' matches no check; did you mean 'mask.polarity'\?"):
        selected(IDS, ["mask.polarty"])
    with pytest.raises(BadSetting, match="'!nothing' matches no check"):
        selected(IDS, ["!nothing"])


def test_the_table_is_read_and_its_files_are_relative_to_it(tmp_path: Path) -> None:
    text = "[tool.attncheck]\njson = 'r.json'\nseed = 2\n[tool.attncheck.targets.'m.A']\nkind = 'kernel'\n"
    (tmp_path / "pyproject.toml").write_text(text)
    table = table_of(tmp_path)
    assert table == {"json": str(tmp_path / "r.json"), "seed": 2, "targets": {"m.A": {"kind": "kernel"}}}
    assert table_of(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.attncheck]\nprofle = 'quick'", "did you mean 'profile'?"),
        ("[tool.attncheck.targets.'m.A']\ninti = {}", "did you mean 'init'?"),
        ("[tool.attncheck]\nprofile =", "pyproject.toml"),
        ("[tool.attncheck]\ntargets = ['m.A']", "targets=['m.A']: expected a table"),
        ("[tool.attncheck.targets]\n'm.A' = 'kernel'", "'m.A'='kernel': expected a table"),
    ],
)
def test_unknown_keys_of_the_table_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BadSetting) as refused:
        table_of(tmp_path)
    assert message in str(refused.value)


def test_checks_that_leave_none_are_refused() -> None:
    with pytest.raises(BadSetting, match="leaves no check"):
        selected(IDS, ["mask.*", "!mask.*"])


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("scale=banana", "a number above 0, 1/sqrt(d), 1/d or learned"),
        ("softcap=-1", "a number above 0, as 50"),
        ("heads=banana", "a whole number, as 8"),
        ("kv_heads=0", "a whole number, as 2"),
    ],
)
def test_declared_numbers_are_numbers(pair: str, expected: str) -> None:
    key, _, value = pair.partition("=")
    with pytest.raises(BadSetting) as refused:
        settings_of({"target": ["m.A"], "declare": [pair]}, {})
    assert str(refused.value) == f"declare: {key}={value!r}: expected {expected}"


def test_a_timeout_is_above_zero() -> None:
    with pytest.raises(BadSetting, match=r"target-timeout=0\.0: expected a number above 0"):
        settings_of({"target": ["m.A"], "timeout": 0.0}, {})
