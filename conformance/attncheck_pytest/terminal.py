"""What is printed beside pytest's own output: what each target became, and the counts."""

from __future__ import annotations

import pytest

from attncheck.reports.text import causes, header, summary, too_few
from attncheck_pytest.session import Run


class Terminal:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.shown = False

    def pytest_report_collectionfinish(self) -> list[str]:
        self.shown = True
        return self.header()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The counts lead. The header follows where this process collected nothing, since xdist's workers did."""
        run, write = self.run, terminalreporter.write_line
        if run.config.get_verbosity() >= 0:
            terminalreporter.write_sep("=", "attncheck")
        if run.usage is not None:
            write(f"ERROR: {run.usage}", red=True)
        for target in run.targets.values():
            if target.error is not None or not run.config.option.collectonly:
                write(summary(target), red=not target.ok, green=target.ok)
                for line in causes(target):
                    write(line)
            if run.too_few(target) and not run.config.option.collectonly:
                write(too_few(target, run.settings.min_checks), red=True)
        for line in [] if self.shown else self.header():
            write(line)

    def header(self) -> list[str]:
        explain = self.run.settings.explain
        if self.run.config.get_verbosity() < 0 and not explain:
            return []
        built = [t for t in self.run.targets.values() if t.error is None]
        return [line for target in built for line in header(target, explain)]
