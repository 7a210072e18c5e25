"""Adds the items of each target to what pytest collected."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from attncheck.report import target_report
from attncheck.settings import Request
from attncheck.valid import BadSetting, closest
from attncheck_pytest.items import ConformanceTarget
from attncheck_pytest.session import Run

if TYPE_CHECKING:
    from attncheck.registry import Check


class Collection:
    """Real nodes, added before any other plugin looks, so that -k, -m, --lf, --deselect and the like see them."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> Generator[None]:
        try:
            for collector in list(self.collectors(session)):
                items.extend(session.genitems(collector))
        except BadSetting as problem:
            if not self.run.worker:
                raise pytest.UsageError(str(problem)) from None
            # A worker cannot refuse its arguments; it runs nothing, and the controller says why.
            self.run.usage = str(problem)
            items.clear()
        return (yield)

    def collectors(self, session: pytest.Session) -> Iterator[ConformanceTarget]:
        from attncheck import suite  # torch comes with it; xdist's controller does without

        settings, config = self.run.settings, self.run.config
        roots = suite.roots_of(config.invocation_params.dir, config.rootpath)
        rules = suite.rules_of(settings)
        for request in settings.requests:
            target = suite.prepared(request, roots, rules)
            if config.option.runxfail:
                target.expectations = []
            checks = [] if target.error is not None else self.checks_of(target.kind, request)
            self.run.targets[request.spec] = target_report(target, len(checks))
            name = f"attncheck:{request.spec}"
            rest = {"target": target, "checks": checks, "request": request, "typed": settings.typed}
            yield ConformanceTarget.from_parent(session, name=name, nodeid=name, **rest)

    def checks_of(self, kind: str, request: Request) -> list[Check]:
        """Those typed as ids, else those that the globs choose."""
        from attncheck.suite import checks_for

        ids = self.run.selection.get(request.spec)
        if not ids:
            return checks_for(kind, request.checks)
        home = f"attncheck:{request.spec}::"
        known = {home + c.id: c for c in checks_for(kind, [])}
        for id in ids:
            if home + id not in known:
                raise BadSetting(f"{home}{id} matches no check of kind {kind}{closest(home + id, known)}")
        return [c for c in known.values() if c.id in ids]
