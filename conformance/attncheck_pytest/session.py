"""A pytest run that has targets: its settings, and what becomes known meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from attncheck.report import CheckReport, TargetReport
from attncheck.settings import Settings, settings_of, table_of
from attncheck.valid import BadSetting
from attncheck_pytest import OPTIONS
from attncheck_pytest.arguments import Selection, take_ids


@dataclass
class Run:
    """Shared by the hooks below. Under xdist the workers collect and run, and the controller gathers."""

    config: pytest.Config
    settings: Settings
    selection: Selection
    targets: dict[str, TargetReport] = field(default_factory=dict)
    results: dict[str, dict[str, CheckReport]] = field(default_factory=dict)
    usage: str | None = None  # what turned out to be wrong with the command line only when it was too late to refuse it

    @property
    def worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    def too_few(self, target: TargetReport) -> bool:
        """Whether less applied than `min_checks`. A floor of pyproject.toml speaks of whole runs only, not of -k."""
        whole = len(target.results) == target.checks and not self.selection.get(target.target)
        asked = self.config.option.attncheck_min_checks is not None or whole
        return asked and target.error is None and target.applied < self.settings.min_checks


def enter(config: pytest.Config) -> None:
    """Take the ids off the command line, read the settings, and take part in this run."""
    from attncheck_pytest.collection import Collection
    from attncheck_pytest.results import Results
    from attncheck_pytest.terminal import Terminal

    selection = take_ids(config)
    options = {name: getattr(config.option, f"attncheck_{name}") for name in OPTIONS}
    options["target"] = list(selection) or options["target"]
    if not options["target"]:
        return
    try:
        settings = settings_of(options, table_of(config.rootpath))
    except BadSetting as problem:
        raise pytest.UsageError(str(problem)) from None
    run = Run(config, settings, selection)
    for part in (Collection, Results, Terminal):
        config.pluginmanager.register(part(run), f"attncheck_{part.__name__.lower()}")
