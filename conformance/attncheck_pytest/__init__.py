"""pytest --target=SPEC: the conformance suite in any project.

Without --target and without an id of ours on the command line this file is all that is imported.
"""

from __future__ import annotations

from typing import Any

import pytest

# Name, help, and what argparse needs; the names are those of [tool.attncheck] too.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "target": (
        "pkg.mod.Name, pkg.mod:Name, path/file.py:Name or configured; repeatable",
        {"action": "append", "metavar": "SPEC"},
    ),
    "init": ("constructor keywords, as 'd_model=32, n_heads=4'", {"metavar": "KEYWORDS"}),
    "config": ("pkg.mod:Config; the target is built as Target(Config(**init))", {"metavar": "SPEC"}),
    "kind": ("attention or kernel, where it cannot be inferred", {"metavar": "KIND"}),
    "declare": ("what the target promises, as mask=allowed; repeatable", {"action": "append", "metavar": "KEY=VALUE"}),
    "checks": ("checks to run; !GLOB excludes; repeatable", {"action": "append", "metavar": "GLOB"}),
    "profile": ("effort: quick, default or deep", {"metavar": "PROFILE"}),
    "seed": ("seed of all that is drawn", {"type": int, "metavar": "N"}),
    "device": ("device of the target", {"metavar": "DEVICE"}),
    "dtype": ("floating-point type of the target", {"metavar": "DTYPE"}),
    "timeout": ("limit in seconds for one item, default 60", {"type": float, "metavar": "SECONDS"}),
    "expect": ("known deviations, a TOML file", {"metavar": "FILE"}),
    "explain": ("print the evidence for each observed convention", {"action": "store_true"}),
    "min_checks": ("fewer applied checks is a failure", {"type": int, "metavar": "N"}),
    "json": ("write the report, attncheck-report/1", {"metavar": "FILE"}),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attncheck", "attncheck: conformance of attention implementations")
    for name, (text, form) in OPTIONS.items():
        option = "--target" if name == "target" else f"--target-{name.replace('_', '-')}"
        group.addoption(option, dest=f"attncheck_{name}", help=text, **form)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "attncheck: a check of the conformance suite (pytest --target=SPEC)")
    if config.option.attncheck_target or any("attncheck:" in arg for arg in config.args):
        from attncheck_pytest.session import enter

        enter(config)
