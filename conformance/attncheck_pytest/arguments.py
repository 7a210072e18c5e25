"""Which arguments of the command line are ids of ours, and which paths were typed."""

from __future__ import annotations

import re

import pytest

# pytest prints ids relative to the start directory, so that one copied from a subdirectory begins with ../
ID = re.compile(r"(?:\.\./)*attncheck:(?P<spec>.+?)(?:::(?P<check>.*))?")
# The checks that are selected by id, for each target; empty where the id names the target alone.
Selection = dict[str, list[str]]


def take_ids(config: pytest.Config) -> Selection:
    """Remove our ids, and the paths that nobody typed, from what pytest collects."""
    matches = {arg: ID.fullmatch(arg) for arg in config.args}
    selection: dict[str, list[str | None]] = {}
    for match in filter(None, matches.values()):
        selection.setdefault(match["spec"], []).append(match["check"])
    if selection or config.option.attncheck_target:
        typed = _typed(config)
        config.args = [arg for arg, match in matches.items() if match is None and arg in typed]
    return {spec: [c for c in checks if c] if all(checks) else [] for spec, checks in selection.items()}


def _typed(config: pytest.Config) -> list[str]:
    """The paths of this command line alone, without those of addopts, PYTEST_ADDOPTS and testpaths."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS or not config.args:
        return []
    own = config._parser.parse_known_args(list(config.invocation_params.args))
    return list(own.file_or_dir)
