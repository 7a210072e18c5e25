"""What the user asked for: options of the command line over the table [tool.attncheck] of pyproject.toml."""

from __future__ import annotations

import ast
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attncheck.declarations import DTYPES, declared
from attncheck.valid import BadSetting, above_zero, closest, file_path, listed, mapping, number, one_of

PROFILES = ("quick", "default", "deep")
KINDS = ("attention", "kernel", "positions", "feed-forward", "block", "causal-lm", "encoder", "seq2seq")
SHARED_KEYS = ("checks", "profile", "seed", "device", "dtype", "timeout")
TARGET_KEYS = (*SHARED_KEYS, "kind", "init", "config", "declare", "adapter")
TABLE_KEYS = (*SHARED_KEYS, "targets", "expect", "min_checks", "json", "explain")


@dataclass(frozen=True)
class Request:
    """One target as it was asked for."""

    spec: str
    init: dict[str, Any] | None = None
    config: str | None = None
    kind: str | None = None
    declare: dict[str, str] = field(default_factory=dict)
    adapter: str | None = None
    dtype: str | None = None
    device: str = "cpu"
    timeout: float = 60.0
    profile: str = "default"
    seed: int = 0
    checks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    requests: list[Request]
    profile: str = "default"
    seed: int = 0
    expect: str | None = None
    explain: bool = False
    min_checks: int = 0
    json: str | None = None
    typed: str = ""  # the options of the command line that made the target what it is, for its reproduction


def keywords(text: str) -> dict[str, Any]:
    """'d_model=32, n_heads=4' -> {'d_model': 32, 'n_heads': 4}, Python literals only."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError):
        hint = "expected keywords with Python literals, as 'd_model=32, n_heads=4'"
        raise BadSetting(f"target-init={text!r}: {hint}") from None


def table_of(root: Path) -> dict[str, Any]:
    """[tool.attncheck] of root/pyproject.toml, its keys checked; its files are relative to it."""
    file = root / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("attncheck", {})
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{file}: {error}") from None
    for key in mapping(f"{file.name}: tool.attncheck", table):
        one_of(f"{file.name}: [tool.attncheck] key", key, TABLE_KEYS)
    for spec, target in mapping(f"{file.name}: tool.attncheck.targets", table.get("targets", {})).items():
        for key in mapping(f"{file.name}: tool.attncheck.targets.{spec!r}", target):
            one_of(f"{file.name}: [tool.attncheck.targets.{spec!r}] key", key, TARGET_KEYS)
    return {key: str(root / value) if key in ("expect", "json") else value for key, value in table.items()}


def settings_of(options: Mapping[str, Any], table: Mapping[str, Any]) -> Settings:
    """Join both, the command line winning. `options` has the names of the command line, without `target-`.

    What is not set is None, False or empty. From Python, init and declare may be mappings.
    """
    given = {k: v for k, v in options.items() if v is not None and v is not False and v != []}
    joined = {**table, **given}
    specs = _expanded(list(given.get("target", [])), table)
    single = [k for k in ("init", "config", "kind", "declare") if k in given]
    if single and len(specs) != 1:
        many = f"there are {len(specs)}; use [tool.attncheck.targets]"
        raise BadSetting(f"target-{single[0]} speaks of one target, but {many}")
    return Settings(
        requests=[_request(spec, given, table) for spec in specs],
        profile=one_of("target-profile", joined.get("profile", "default"), PROFILES),
        seed=number("target-seed", joined.get("seed", 0), int),
        expect=joined.get("expect"),
        explain=bool(joined.get("explain", False)),
        min_checks=number("target-min-checks", joined.get("min_checks", 0), int),
        json=file_path("target-json", joined.get("json")),
        typed=retyped(given),
    )


def _expanded(specs: list[str], table: Mapping[str, Any]) -> list[str]:
    configured = list(table.get("targets", {}))
    if "configured" in specs and not configured:
        raise BadSetting("target='configured', but pyproject.toml has no [tool.attncheck.targets.\"pkg.mod.Name\"]")
    wanted = [s for spec in specs for s in (configured if spec == "configured" else [spec])]
    for spec in wanted:
        if spec.endswith("]") and spec not in configured:
            hint = closest(spec, configured or ["-"])
            raise BadSetting(f"target={spec!r} is no key of [tool.attncheck.targets]{hint}")
    return list(dict.fromkeys(wanted))


def _request(spec: str, given: Mapping[str, Any], table: Mapping[str, Any]) -> Request:
    """One target: the command line over the target's own table over [tool.attncheck]."""
    entry = table.get("targets", {}).get(spec, {})
    own = {k: source[k] for source in (table, entry, given) for k in TARGET_KEYS if k in source}
    pairs = {**mapping("declare", entry.get("declare", {})), **_pairs(given.get("declare", {}))}
    init = own.get("init")
    return Request(
        spec=spec,
        init=keywords(init) if isinstance(init, str) else None if init is None else mapping("init", init),
        config=own.get("config"),
        kind=one_of("target-kind", own["kind"], KINDS) if "kind" in own else None,
        declare=declared(pairs),
        adapter=own.get("adapter"),
        dtype=one_of("target-dtype", own["dtype"], DTYPES) if "dtype" in own else None,
        device=str(own.get("device", "cpu")),
        timeout=above_zero("target-timeout", number("target-timeout", own.get("timeout", 60.0), float)),
        profile=one_of("target-profile", own.get("profile", "default"), PROFILES),
        seed=number("target-seed", own.get("seed", 0), int),
        checks=listed("target-checks", own.get("checks", [])),
    )


def _pairs(declare: Mapping[str, Any] | list[str]) -> dict[str, Any]:
    return dict(declare) if isinstance(declare, Mapping) else dict(_pair(p) for p in declare)


def retyped(given: Mapping[str, Any]) -> str:
    """The options to type again so that a target is built and checked as it was."""
    one = ("init", "config", "kind", "profile", "seed", "device", "dtype", "timeout")
    pairs = [(k, v) for k in one if (v := given.get(k)) is not None and not isinstance(v, Mapping)]
    pairs += [("declare", f"{k}={v}") for k, v in _pairs(given.get("declare", {})).items()]
    return " ".join(f"--target-{k}={quoted(str(v))}" for k, v in pairs)


def quoted(text: str) -> str:
    """For a shell; anything but a plain word in quotes."""
    if text.replace("=", "").replace(".", "").replace("-", "").isalnum():
        return text
    return shlex.quote(text) if "'" in text else f"'{text}'"


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BadSetting(f"target-declare={text!r}: expected KEY=VALUE, as mask=allowed")
    return key.strip(), value.strip()


def selected(ids: list[str], globs: list[str]) -> list[str]:
    """Apply the globs of --target-checks; one that matches nothing is an error."""
    chosen = set(ids) if not globs or all(g.startswith("!") for g in globs) else set()
    for glob in globs:
        pattern = glob.removeprefix("!")
        hits = {i for i in ids if fnmatchcase(i, pattern)}
        if not hits:
            raise BadSetting(f"target-checks={glob!r} matches no check{closest(pattern, ids)}")
        chosen = chosen - hits if glob.startswith("!") else chosen | hits
    if not chosen:
        raise BadSetting(f"target-checks={globs} leaves no check; expected at least one, as 'mask.*'")
    return [i for i in ids if i in chosen]
