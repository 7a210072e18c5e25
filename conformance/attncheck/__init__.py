"""Property checks that find wrong masks, leaks and scales in any attention implementation.

The public names are imported when they are first used, so that `import attncheck` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncheck.parametrized import parametrize
    from attncheck.registry import check
    from attncheck.report import Report
    from attncheck.subject import Refused
    from attncheck.suite import run_checks

__all__ = ["Refused", "Report", "check", "parametrize", "run_checks"]

_HOME = {
    "Refused": "subject",
    "Report": "report",
    "check": "registry",
    "parametrize": "parametrized",
    "run_checks": "suite",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attncheck' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"attncheck.{_HOME[name]}"), name)
