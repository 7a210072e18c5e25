"""Gathers the results, from this process or from xdist's workers; decides the exit code and writes the report."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from attncheck.report import CheckReport, Report, environment, from_data, unfinished
from attncheck.reports import json
from attncheck.settings import quoted
from attncheck_pytest.items import ConformanceCheck
from attncheck_pytest.session import Run


class Results:
    """Kept by id for each target, in plain data."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if isinstance(item, ConformanceCheck) and call.when == "call" and item.report is not None:
            report.attncheck = asdict(item.report)  # plain data, so that it travels from a worker
            if report.skipped and isinstance(report.longrepr, tuple):
                report.longrepr = (item.parent.name, None, report.longrepr[2])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spec, _, check = report.nodeid.removeprefix("attncheck:").partition("::")
        results = self.run.results.setdefault(spec, {})
        if hasattr(report, "attncheck"):
            results[check] = CheckReport(**report.attncheck)
        elif report.failed and report.nodeid.startswith("attncheck:"):
            # No result came back: the worker is gone, or another plugin failed the item.
            results[check] = unfinished(check, check, report.longreprtext.strip(), f"pytest {quoted(report.nodeid)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker knows of the targets; the first that ends says it for all."""
        sent = getattr(node, "workeroutput", {}).get("attncheck", {})
        self.run.usage = self.run.usage or sent.get("usage")
        for data in sent.get("targets", []):
            self.run.targets.setdefault(data["target"], from_data(data))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        run = self.run
        if run.worker:
            sent = {"usage": run.usage, "targets": [asdict(t) for t in run.targets.values()]}
            run.config.workeroutput["attncheck"] = sent  # type: ignore[attr-defined]
            return
        for spec, target in run.targets.items():
            target.results = sorted(run.results.get(spec, {}).values(), key=lambda r: r.check)
        if run.settings.json is not None and not run.config.option.collectonly and run.usage is None:
            self.write(Path(run.settings.json))
        session.exitstatus = self.exit_code(exitstatus)

    def exit_code(self, status: int) -> int:
        """Pytest's own, but 1 where too few checks applied, and 4 where a target is broken and nothing else failed."""
        if self.run.usage is not None:
            return pytest.ExitCode.USAGE_ERROR
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return status
        targets = self.run.targets.values()
        if not self.run.config.option.collectonly and any(map(self.run.too_few, targets)):
            return pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.USAGE_ERROR if any(t.error is not None for t in targets) else status

    def write(self, file: Path) -> None:
        settings = self.run.settings
        about = environment(settings.profile, settings.seed, settings.requests[0].device)
        ordered = [self.run.targets[r.spec] for r in settings.requests if r.spec in self.run.targets]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.render(Report(about, ordered)), encoding="utf-8")
        except OSError as error:
            self.run.usage = f"target-json={str(file)!r} could not be written: {error.strerror}"
