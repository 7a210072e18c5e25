"""The pages of the checks, and the kill matrix; both are written from the records."""

import re
import sys
from pathlib import Path

import pytest

from attncheck import pages
from attncheck.command import main
from attncheck.killmatrix import matrix
from attncheck.registry import Check
from attncheck.suite import all_checks
from attncheck_faults import faults

DOCS = Path(__file__).parents[1] / "docs"
CHECKS = all_checks()
AGAIN = "run `attncheck explain --write docs/checks`"


def example_of(page: str) -> str:
    """The part of a page that only a run can give."""
    return page.partition("```text\n")[2].partition("\n```")[0]


def words(text: str) -> list[str]:
    """Without numbers, which differ among machines, and without line ends, which follow them."""
    return re.sub(r"[-+.]?\d[-+.\w]*", "", text).split()


def test_every_check_has_a_page_and_no_page_is_left_over() -> None:
    assert {p.stem for p in (DOCS / "checks").glob("*.md")} == {"README", *(c.id for c in CHECKS)}, AGAIN
    assert (DOCS / "checks" / "README.md").read_text() == pages.index(CHECKS), AGAIN


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_page_is_what_the_records_say(check: Check) -> None:
    written = (DOCS / "checks" / f"{check.id}.md").read_text()
    assert written == pages.page(check, told=example_of(written)), AGAIN


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.id)
def test_example_fails_as_the_page_says(check: Check) -> None:
    told = pages.told_on_first_fault(check)
    assert "likely cause: " in told
    written = (DOCS / "checks" / f"{check.id}.md").read_text()
    assert words(told) == words(example_of(written)), AGAIN


@pytest.mark.parametrize("fault", faults().values(), ids=lambda f: f.id)
def test_bugs_of_a_fault_are_known(fault: object) -> None:
    assert set(getattr(fault, "bugs", ())) <= set(pages.known_bugs())


@pytest.mark.parametrize(("number", "bug"), pages.known_bugs().items(), ids=lambda x: x if isinstance(x, str) else "")
def test_bug_has_all_that_a_page_prints(number: str, bug: pages.Bug) -> None:
    assert re.fullmatch(r"B\d{3}", number)
    assert set(bug) == {"project", "url", "year", "symptom"}
    assert re.fullmatch(rf"https://github\.com/{re.escape(bug['project'])}/(issues|pull)/\d+", bug["url"])
    assert 2015 <= bug["year"] <= 2030 and bug["symptom"].endswith(".")


def said(doc: str, faults: tuple[str, ...] = ("scale.none",)) -> Check:
    def run(*_: object) -> None: ...

    run.__doc__ = doc
    return Check("some.check", run, ("attention",), faults, needs=("mask",))


DOC = """Claim in one line.

    Exact: free text is no section.

    Why: it matters,
    on two lines.
    Fix: repair it.
    Blind:
    a | pipe.
    """


def test_sections_of_a_docstring() -> None:
    check = said(DOC)
    assert (check.claim, check.text) == ("Claim in one line", "Exact: free text is no section.")
    found = {name: check.section(name) for name in ("Why", "Fix", "Blind", "Earns")}
    assert found == {"Why": "it matters,\non two lines.", "Fix": "repair it.", "Blind": "a | pipe.", "Earns": ""}


def test_page_has_the_sections_the_fault_as_code_and_its_bugs() -> None:
    page = pages.page(said(DOC), told="EVIDENCE")
    assert "## Why it matters\n\nIt matters,\non two lines.\n\n## The smallest broken example" in page
    assert "`scale.none` replaces the step `scale` of the reference; " in page
    assert '```python\ndef none(m, sound, scores, d):\n    """' in page and "```text\nEVIDENCE\n```" in page
    assert "- B060 mlc-ai/mlc-llm, 2026: " in page and page.count("https://") == 2
    assert "- inapplicable: where the target takes no mask\n" in page


def test_page_says_when_the_code_of_a_check_finds_itself_inapplicable() -> None:
    check = next(c for c in CHECKS if c.id == "symmetry.permutation")
    reason = "- inapplicable: the target is causal or windowed, so that order matters to it\n"
    assert reason in pages.page(check, told="")


def test_page_of_a_check_whose_faults_are_not_known() -> None:
    page = pages.page(said("Claim.", faults=("no.such",)))
    assert "no.such - not among the known faults" in page and "example" not in page and "Why" not in page


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["causal.futur-edit"], "id='causal.futur-edit' is no check; did you mean 'causal.future-edit'?"),
        ([], "expected either an ID, as causal.future-edit, or --write=FOLDER for all of them"),
        (["causal.future-edit", "--write=x"], "expected either an ID"),
    ],
)
def test_bad_arguments_of_explain(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_explain_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "mask.polarity"]) == 0
    out = capsys.readouterr().out
    assert out == pages.page(next(c for c in CHECKS if c.id == "mask.polarity"), told=example_of(out))
    assert words(out) == words((DOCS / "checks" / "mask.polarity.md").read_text())


def test_explain_writes_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "told_on_first_fault", lambda check: "EVIDENCE")
    assert main(["explain", f"--write={tmp_path / 'new' / 'checks'}"]) == 0
    assert {p.stem for p in (tmp_path / "new" / "checks").iterdir()} == {"README", *(c.id for c in CHECKS)}


ROWS = [
    ("mask.soft", ["some.check", "mask.polarity", "mask.broadcast"], ["mask.polarity", "numeric.oracle"]),
    ("scale.none", ["numeric.oracle"], ["numeric.oracle"]),
]


def test_matrix_has_a_table_a_family_and_says_what_is_missed() -> None:
    text = matrix(ROWS, [], {"mask.soft": "It is soft | weak"})
    must, also = "mask.polarity, numeric.oracle **(missed)**", "mask: broadcast; some: check"
    assert f"| mask.soft | It is soft \\| weak | {must} | {also} |" in text
    assert "## Faults of mask\n" in text and "## Faults of scale\n" in text


def test_matrix_says_what_a_check_alone_catches_or_why_it_is_kept() -> None:
    numeric = next(c for c in CHECKS if c.id == "numeric.oracle")
    text = matrix(ROWS, [numeric, said("Claim.\n\nEarns: it is\ncheap."), said("Claim.")], {})
    assert "| [numeric.oracle](checks/numeric.oracle.md) | 1 | scale.none |" in text
    assert "| 1 | none: it is cheap. |" in text and "| 1 | none: why it is kept is not said. |" in text


def test_published_matrix_has_every_check_and_every_fault() -> None:
    text = (DOCS / "kill-matrix.md").read_text()
    told = set(re.findall(r"^\| \[?([\w.-]+\.[\w-]+)", text, re.MULTILINE))
    assert told == {c.id for c in CHECKS} | set(faults()), "run `attncheck selftest --write docs/kill-matrix.md`"
    assert "(missed)" not in text


def test_selftest_writes_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["attncheck.wiring"], "selftest", lambda: ROWS)
    assert main(["selftest", f"--write={tmp_path / 'new' / 'm.md'}"]) == 1
    assert "# The kill matrix" in (tmp_path / "new" / "m.md").read_text()
