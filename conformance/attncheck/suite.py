"""The checks of one target, run one by one: what the plugin, the command and `run_checks` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attncheck import wiring
from attncheck.engine import Target, run
from attncheck.expectations import Rule, foreseen, read
from attncheck.registry import Check, checks_of
from attncheck.report import CheckReport, Report, check_report, environment, target_report, unfinished
from attncheck.settings import KINDS, Request, Settings, quoted, selected, settings_of, table_of
from attncheck.subject import TimedOut
from attncheck.timer import limited

# Gives the shell command that runs one check, by its id, again.
Command = Callable[[str], str]


def all_checks() -> list[Check]:
    return sorted({c.id: c for kind in KINDS for c in checks_of(kind)}.values(), key=lambda c: c.id)


def checks_for(kind: str, globs: list[str]) -> list[Check]:
    """The checks of a kind that the globs choose. A glob need only match a check of some kind."""
    chosen = set(selected([c.id for c in all_checks()], globs))
    return [c for c in checks_of(kind) if c.id in chosen]


def rules_of(settings: Settings) -> list[Rule]:
    """The user's expectations, their ids checked."""
    return [] if settings.expect is None else read(Path(settings.expect), [c.id for c in all_checks()])


def prepared(request: Request, roots: list[Path], rules: Sequence[Rule] = (), obj: Any = None) -> Target:
    """Build a target. Whatever code that is not ours does meanwhile becomes the target's error."""
    try:
        target = wiring.prepare(request, roots, obj)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        text = f"preparing {request.spec} raised {type(error).__name__}: {error}"
        target = Target(request.spec, request.kind or "attention", "", error=text)
    target.expectations = [*target.expectations, *foreseen(rules, target, request)]
    return target


def judged(check: Check, target: Target, request: Request, command: Command) -> CheckReport:
    """One check on one target, within its time. What escapes from the target is its failure, not ours."""
    try:
        with limited(request.timeout, check.id):
            report = check_report(run(check, target, request.profile, request.seed))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except TimedOut as late:
        return unfinished(check.id, check.claim, f"{late}; a larger timeout= allows more", command(check.id))
    except BaseException as error:
        return unfinished(check.id, check.claim, f"it raised {type(error).__name__}: {error}", command(check.id))
    if report.finding is not None:
        script = report.finding["reproduce"].partition("\n\n")[2]
        report.finding["reproduce"] = "\n\n".join(filter(None, (command(check.id), script)))
    return report


def report_of(settings: Settings, roots: list[Path], obj: Any = None, again: Command | None = None) -> Report:
    """Run all that is asked for."""
    first = settings.requests[0]
    report = Report(environment(settings.profile, settings.seed, first.device))
    rules = rules_of(settings)
    for request in settings.requests:
        target = prepared(request, roots, rules, obj)
        checks = [] if target.error is not None else checks_for(target.kind, request.checks)
        entry = target_report(target, len(checks))
        command = again or pytest_command(request.spec, settings.typed)
        entry.results = [judged(check, target, request, command) for check in checks]
        report.targets.append(entry)
    return report


def pytest_command(spec: str, typed: str = "") -> Command:
    """`pytest 'attncheck:SPEC::ID'` with the options that made the target what it is."""
    return lambda check: f"pytest {quoted(f'attncheck:{spec}::{check}')}{typed and ' ' + typed}"


def roots_of(start: Path, project: Path) -> list[Path]:
    """Where a target is looked for, besides sys.path: from the start directory, then from the project's."""
    return [start, start / "src", project, project / "src"]


def project_of(start: Path) -> Path:
    """The nearest directory with a pyproject.toml, upwards from `start`."""
    return next((p for p in (start, *start.parents) if (p / "pyproject.toml").is_file()), start)


def here() -> tuple[list[Path], Path]:
    """The roots, and the project, of a run outside of pytest."""
    start = Path.cwd()
    return roots_of(start, project_of(start)), project_of(start)


def requested(target: Any, options: dict[str, Any]) -> tuple[Settings, Any]:
    """Settings for a target given in Python, and the object where it is one; a spec also reads pyproject.toml."""
    if isinstance(target, str):
        return settings_of({"target": [target], **options}, table_of(here()[1])), None
    return settings_of({"target": [label_of(target)], **options}, {}), target


def label_of(target: Any) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


def run_checks(
    target: Any,
    init: dict[str, Any] | None = None,
    declare: dict[str, Any] | None = None,
    profile: str | None = None,
    **options: Any,
) -> Report:
    """Run the conformance suite on a target: a spec, a class, a factory, an instance or a plain function.

    options: kind, config, adapter, checks (globs), seed, device, dtype, timeout, expect, as on the command line.
    """
    settings, obj = requested(target, {"init": init, "declare": declare, "profile": profile, **options})
    label = settings.requests[0].spec
    again = None if obj is None else (lambda check: f"attncheck.run_checks({label}, checks=[{check!r}])")
    return report_of(settings, here()[0], obj, again)
