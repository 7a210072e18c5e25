"""The nodes of pytest's tree: a collector for each target, an item for each check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from attncheck.engine import Target
    from attncheck.registry import Check
    from attncheck.report import CheckReport
    from attncheck.settings import Request


class ConformanceTarget(pytest.Collector):
    """`attncheck:SPEC`."""

    def __init__(self, target: Target, checks: list[Check], request: Request, typed: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.target, self.checks, self.request, self.typed = target, checks, request, typed
        self.told: list[CheckReport] = []
        self.add_marker("attncheck")

    def collect(self) -> Iterator[ConformanceCheck]:
        for check in self.checks:
            yield ConformanceCheck.from_parent(self, name=check.id, check=check)


class ConformanceCheck(pytest.Item):
    """`attncheck:SPEC::family.property`."""

    parent: ConformanceTarget
    report: CheckReport | None = None

    def __init__(self, check: Check, **rest: Any) -> None:
        super().__init__(**rest)
        self.check = check

    def runtest(self) -> None:
        from attncheck.reports.text import leading, result_text
        from attncheck.suite import judged, pytest_command

        home = self.parent
        command = pytest_command(home.request.spec, home.typed)
        self.report = judged(self.check, home.target, home.request, command)
        status = self.report.status
        if status == "inapplicable":
            pytest.skip(self.report.reason or "")
        if status == "xfailed":
            pytest.xfail(self.report.reason or "")
        if status != "passed":
            home.told.append(self.report)
            pytest.fail(result_text(self.report, leading(home.told).get(self.report.check)), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        # The place and the headline that pytest prints for the item: the target, not a file of ours.
        return self.config.rootpath / self.parent.name, None, f"{self.parent.request.spec} {self.name}"
