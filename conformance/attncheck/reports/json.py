"""The report for programs, `attncheck-report/1`; schema.json beside this file describes it."""

from __future__ import annotations

import json

from attncheck.report import Report


def render(report: Report) -> str:
    return json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"
