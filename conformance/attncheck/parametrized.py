"""The conformance suite inside a user's own test: one item a check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from attncheck.engine import Target
from attncheck.registry import Check
from attncheck.reports.text import result_text
from attncheck.settings import Request, quoted
from attncheck.spec import split
from attncheck.suite import checks_for, here, judged, label_of, prepared, requested, rules_of


class ConformanceError(AssertionError):
    """A check failed; the text is the finding."""


@dataclass(repr=False)
class Item:
    """What a parametrized test is given: call it."""

    check: Check
    target: Target
    request: Request

    def __repr__(self) -> str:
        return f"<{self.check.id} of {self.target.spec}>"

    def __call__(self) -> None:
        __tracebackhide__ = True
        report = judged(self.check, self.target, self.request, lambda check: f"pytest {quoted(_current_test())}")
        if report.status == "inapplicable":
            pytest.skip(report.reason or "")
        if report.status == "xfailed":
            pytest.xfail(report.reason or "")
        if report.status != "passed":
            raise ConformanceError(result_text(report))


@dataclass
class Broken:
    """Stands for the checks of a target that could not be built."""

    error: str

    def __call__(self) -> None:
        __tracebackhide__ = True
        raise ConformanceError(self.error)


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]


def parametrize(targets: Iterable[Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Give `def test_conformance(check): check()` one item for each check of each target.

    targets: specs, classes, factories, instances or functions.
    options: as for `run_checks`; init and declare are the same for all of them.
    """
    params: list[Any] = []
    labels: list[str] = []
    for given in targets:
        label = _label(given)
        labels.append(label)
        repeated = labels.count(label)
        params += _params(given, options, label if repeated == 1 else f"{label}{repeated}")
    return pytest.mark.parametrize("check", params)


def _params(given: Any, options: dict[str, Any], label: str) -> list[Any]:
    settings, obj = requested(given, options)
    request = settings.requests[0]
    target = prepared(request, here()[0], rules_of(settings), obj)
    if target.error is not None:
        return [pytest.param(Broken(target.error), id=label)]
    checks = checks_for(target.kind, request.checks)
    return [pytest.param(Item(check, target, request), id=f"{label}-{check.id}") for check in checks]


def _label(given: Any) -> str:
    """The last name of the target, and of its configuration: short, and without a bracket of its own."""
    base, name = split(given if isinstance(given, str) else label_of(given))
    return "-".join(filter(None, (base.replace(":", ".").rpartition(".")[2], name)))
