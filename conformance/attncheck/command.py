"""The `attncheck` command: run, init, list, explain, selftest.

Exit codes: 0 passed, 1 findings, 2 could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attncheck.valid import BadSetting, closest

if TYPE_CHECKING:
    from attncheck.report import Report

PASSED, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        code: int = options.action(options)
    except BadSetting as problem:
        # The same settings have the prefix target- under pytest.
        print(f"attncheck: {str(problem).removeprefix('target-')}", file=sys.stderr)
        return COULD_NOT_RUN
    except BrokenPipeError:
        # The reader, as `head`, has seen enough; nothing is left to flush to.
        sys.stdout = None
        return PASSED
    return code


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="attncheck", description=__doc__, formatter_class=raw)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run the checks on targets, as pytest --target=SPEC does")
    run.set_defaults(action=run_targets)
    forms = "pkg.mod.Name, pkg.mod:Name, path/file.py:Name, or configured"
    run.add_argument("target", nargs="+", metavar="SPEC", help=forms)
    for name in ("init", "config", "kind", "profile", "device", "dtype", "expect", "json"):
        run.add_argument(f"--{name}")
    for name in ("declare", "checks"):
        run.add_argument(f"--{name}", action="append")
    run.add_argument("--seed", type=int)
    run.add_argument("--timeout", type=float)
    run.add_argument("--min-checks", type=int)
    run.add_argument("--explain", action="store_true")
    init = commands.add_parser("init", help="print what was found of a target as configuration, or a starter adapter")
    init.set_defaults(action=start)
    init.add_argument("target", metavar="SPEC", help=forms.rpartition(", or ")[0])
    for name in ("init", "config", "kind"):
        init.add_argument(f"--{name}")
    commands.add_parser("list", help="the checks, with what each claims").set_defaults(action=list_checks)
    explain = commands.add_parser("explain", help="one check: why it matters, an example run here, and how to fix it")
    explain.set_defaults(action=explain_check)
    explain.add_argument("id", nargs="?", metavar="ID")
    explain.add_argument("--write", metavar="FOLDER", help="write the pages of all checks instead, as docs/checks")
    proof = commands.add_parser("selftest", help="run the checks on the known faults")
    proof.set_defaults(action=selftest)
    proof.add_argument("--write", metavar="FILE", help="also write the matrix as Markdown, as docs/kill-matrix.md")
    return top


def run_targets(options: argparse.Namespace) -> int:
    from attncheck.reports import json, text
    from attncheck.settings import settings_of, table_of
    from attncheck.suite import here, report_of

    given = {name: value for name, value in vars(options).items() if name != "action"}
    roots, project = here()
    settings = settings_of(given, table_of(project))
    report = report_of(settings, roots)
    for target in report.targets:
        print("\n".join(text.header(target, settings.explain)), end="\n\n")
    print(text.render(report), end="")
    if settings.json is not None:
        Path(settings.json).parent.mkdir(parents=True, exist_ok=True)
        Path(settings.json).write_text(json.render(report), encoding="utf-8")
    return exit_code(report, settings.min_checks)


def start(options: argparse.Namespace) -> int:
    """Exit 0 with a configuration, 2 with a starter adapter, which is to be finished by hand."""
    from attncheck import wiring
    from attncheck.settings import settings_of
    from attncheck.spec import BadTarget
    from attncheck.starter import MODULE
    from attncheck.suite import here

    given = {name: value for name, value in vars(options).items() if name != "action"} | {"target": [options.target]}
    roots, _ = here()
    try:
        text = wiring.starter(settings_of(given, {}).requests[0], roots)
    except BadTarget as problem:
        raise BadSetting(str(problem)) from None
    print(text, end="")
    return COULD_NOT_RUN if text.startswith(f"# {MODULE}") else PASSED


def exit_code(report: Report, min_checks: int) -> int:
    """Findings win over targets that could not be built."""
    from attncheck.reports.text import too_few

    built = [t for t in report.targets if t.error is None]
    few = [t for t in built if t.applied < min_checks]
    for target in few:
        print(too_few(target, min_checks))
    if few or not all(t.ok for t in built):
        return FINDINGS
    return PASSED if len(built) == len(report.targets) else COULD_NOT_RUN


def list_checks(options: argparse.Namespace) -> int:
    from attncheck.suite import all_checks

    checks = all_checks()
    width = max(len(c.id) for c in checks)
    for check in checks:
        print(f"{check.id:<{width}}  {check.claim}")
    return PASSED


def explain_check(options: argparse.Namespace) -> int:
    from attncheck.pages import page, write
    from attncheck.suite import all_checks

    checks = {c.id: c for c in all_checks()}
    if options.write is not None and options.id is None:
        write(list(checks.values()), Path(options.write))
        return PASSED
    if options.write is not None or options.id is None:
        raise BadSetting("explain: expected either an ID, as causal.future-edit, or --write=FOLDER for all of them")
    if options.id not in checks:
        raise BadSetting(f"id={options.id!r} is no check{closest(options.id, checks)}")
    print(page(checks[options.id]), end="")
    return PASSED


def selftest(options: argparse.Namespace) -> int:
    """The kill matrix: a fault that a check says it catches, and does not, is a finding about attncheck itself."""
    from attncheck import wiring

    missed = 0
    rows = wiring.selftest()
    width = max(len(fault) for fault, _, _ in rows)
    for fault, caught, expected in rows:
        lacking = [check for check in expected if check not in caught]
        missed += bool(lacking)
        note = f"  MISSED BY {', '.join(lacking)}" if lacking else ""
        print(f"{fault:<{width}}  {', '.join(caught) or 'NOT CAUGHT'}{note}")
    print(f"{len(rows)} faults, {missed} missed by a check that must catch them")
    if options.write is not None:
        from attncheck.killmatrix import matrix
        from attncheck.suite import all_checks

        Path(options.write).parent.mkdir(parents=True, exist_ok=True)
        Path(options.write).write_text(matrix(rows, all_checks(), wiring.fault_summaries()), encoding="utf-8")
    return FINDINGS if missed else PASSED


if __name__ == "__main__":
    sys.exit(main())
