"""A page a check, in Markdown that reads well in a terminal too.

All of it is made from the records of checks and faults, and the example of a page is run when the page is made.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from attncheck import wiring
from attncheck.engine import run
from attncheck.registry import Check
from attncheck.reports.text import finding_text

Bug = dict[str, Any]
LACKS = {
    "weights": "the target returns no attention weights",
    "mask": "the target takes no mask",
    "causality": "the target is not causal and takes no (T,S) mask",
    "window": "the target has no window",
    "bias": "the target takes no float mask that is added to the scores",
    "memory": "the target takes no memory",
    "module": "the target is no nn.Module",
    "order": "the target has positions",
    "positions": "the target has no positions",
}


@functools.cache
def known_bugs() -> dict[str, Bug]:
    """The public bugs that faults name: project, url, year and symptom, by number."""
    return tomllib.loads(files("attncheck").joinpath("bugs.toml").read_text(encoding="utf-8"))


def page(check: Check, told: str | None = None) -> str:
    """Everything about one check. `told` is what it says on its first fault, found by running it where None."""
    parts = {
        "Why it matters": _sentence(check.section("Why")),
        "The smallest broken example": _example(check, told_on_first_fault(check) if told is None else told),
        "How to fix it": _sentence(check.section("Fix")),
        "What it cannot see": _sentence(check.section("Blind")),
        "When it is asked": "\n".join(f"- {line}" for line in _terms(check)),
        "Faults that it must catch": "\n".join(map(_fault_line, check.faults)),
        "Public bugs behind them": "\n".join(_bug_lines(check)),
    }
    sections = [f"## {title}\n\n{body}" for title, body in parts.items() if body]
    return "\n\n".join(filter(None, (f"# {check.id}", f"{check.claim}.", check.text, *sections))) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fault_line(id: str) -> str:
    fault = wiring.known_faults().get(id)
    if fault is None:
        return f"-  {id} - not among the known faults"
    return f"-  {id} - {fault.summary}" + (f" ({', '.join(fault.bugs)})" if fault.bugs else "")


def _bug_lines(check: Check) -> list[str]:
    bugs, faults = known_bugs(), wiring.known_faults()
    numbers = sorted({number for id in check.faults if id in faults for number in faults[id].bugs})
    return [f"- {n} {b['project']}, {b['year']}: {b['symptom']} {b['url']}" for n in numbers if (b := bugs.get(n))]


def _example(check: Check, told: str) -> str:
    """The first fault as code, and what the check says about it."""
    fault = wiring.known_faults().get(check.faults[0])
    if fault is None:
        return ""
    built = f" (built with {', '.join(f'{k}={v!r}' for k, v in fault.init.items())})" if fault.init else ""
    given = f"`{check.faults[0]}` replaces the step `{fault.step}` of the reference{built}; `sound` is the right step."
    code = "def " + inspect.getsource(fault.run).partition("\ndef ")[2].rstrip()
    return f"{given}\n\n```python\n{code}\n```\n\nWhat it then says:\n\n```text\n{told}\n```"


def told_on_first_fault(check: Check) -> str:
    """What the check prints on its first fault, without the claim and the script."""
    fault = wiring.known_faults().get(check.faults[0])
    profiles = ("deep",) if check.profile == "deep" else ("quick", "default")
    for profile in () if fault is None else profiles:
        finding = run(check, wiring.faulty_target(fault), profile).finding
        if finding is not None:
            text = finding_text(asdict(finding)).partition("\n\nReproduce with:")[0]
            return _wrapped(text.removeprefix(finding.claim).strip())
    return "nothing: the check missed it"


def _wrapped(text: str) -> str:
    wrap = textwrap.TextWrapper(width=112, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrap.fill(line) for line in text.splitlines())


def _terms(check: Check) -> list[str]:
    """Kinds and severity, and when it is inapplicable: what it needs, and the reasons that its own code gives."""
    said = re.findall(r'Inapplicable\(\s*f?"(.*?)"', inspect.getsource(check.run))
    reasons = [f"where {LACKS[need]}" for need in check.needs] + [re.sub(r"\{.*?\}", "...", text) for text in said]
    lines = [f"kinds: {', '.join(check.kinds)}", f"needs: {', '.join(check.needs) or 'nothing'}"]
    return [*lines, f"severity: {check.severity}", *(f"inapplicable: {reason}" for reason in reasons)]


def index(checks: Iterable[Check]) -> str:
    rows = [f"| [{c.id}]({c.id}.md) | {cell(c.claim)} |" for c in checks]
    head = ["# The checks", "", "| check | claim |", "| --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def write(checks: Sequence[Check], folder: Path) -> None:
    """All pages and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"README": index(checks), **{check.id: page(check) for check in checks}}.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
