"""Specs: every spelling finds its object, and each thing that can go wrong is told by its own words."""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attncheck.spec import BadTarget, importing_code, locate, split

FILES = {
    "specpkg/__init__.py": "",
    "specpkg/attention.py": """
        class Attention:
            class Inner:
                pass
        NUMBER = 3
    """,
    "specpkg/lacks.py": "import not_installed_anywhere\nclass A: pass",
    "specpkg/lacks_sibling.py": "import specpkg.not_there\nclass A: pass",
    "spec_raises.py": "raise RuntimeError('no such device')",
    "spec_exits.py": "import sys\nsys.exit(3)",
    "spec_interrupted.py": "raise KeyboardInterrupt",
    "spec_lacks.py": "from not_installed_anywhere import x\nclass A: pass",
    "deep/spec_file.py": "from spec_neighbour import B\nclass A:\n    class Inner: pass",
    "deep/spec_neighbour.py": "class B: pass",
    "deep/spec_broken_file.py": "class A: pass\nraise RuntimeError('half way')",
    "deep/colorsys.py": "class A: pass",
}


@pytest.fixture(autouse=True)
def root(tmp_path: Path) -> Iterator[Path]:
    """A project, and the interpreter's own search as it was before."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def complaint(spec: str, root: Path) -> str:
    with pytest.raises(BadTarget) as caught:
        locate(spec, [root])
    return str(caught.value)


SPELLINGS = {
    "specpkg.attention.Attention": "Attention",
    "specpkg.attention:Attention": "Attention",
    "specpkg.attention.Attention.Inner": "Attention.Inner",
    "specpkg.attention:Attention.Inner": "Attention.Inner",
    "specpkg.attention.Attention[wide]": "Attention",
    "deep/spec_file.py:A": "A",
    "deep/spec_file.py:A.Inner": "A.Inner",
    "deep/spec_file.py:B": "B",
}


@pytest.mark.parametrize(("spec", "name"), SPELLINGS.items())
def test_every_spelling_finds_its_object(spec: str, name: str, root: Path) -> None:
    assert locate(spec, [root]).__qualname__ == name


def test_a_file_is_found_by_its_whole_path_and_imported_once(root: Path) -> None:
    found = locate(f"{root}/deep/spec_file.py:A", [])
    assert locate("deep/spec_file.py:A", [root]) is found
    assert locate("deep/spec_file.py:A", [root]) is found
    assert sys.path.count(str(root)) == 1


def test_split() -> None:
    assert split("m.A[wide]") == ("m.A", "wide")
    assert split("m.A") == ("m.A", "")


def test_earlier_roots_win(root: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec_twice.py").write_text(f"PLACE = '{name}'")
    assert locate("spec_twice.PLACE", [tmp_path / "first", tmp_path / "second"]) == "first"


COMPLAINTS = {
    "specpkg.attention.Atention": r"specpkg\.attention has no 'Atention'; did you mean Attention\?",
    "specpkg.attention:Atention": r"specpkg\.attention has no 'Atention'; did you mean Attention\?",
    "specpkg.attention.Attention.Iner": r"Attention has no 'Iner'; did you mean Inner\?",
    "specpkg.attention.NUMBER.rael": r"3 has no 'rael'; did you mean real\?",
    "specpkg.atention.Attention": r"specpkg has no 'atention'",
    "specpkg.nowhere.deeper.A": r"specpkg has no 'nowhere'",
    "not_there_at_all.A": r"No module named 'not_there_at_all'",
    "not_there_at_all:A": r"No module named 'not_there_at_all'",
    "Attention": r"expected pkg\.mod\.Name, pkg\.mod:Name or path/file\.py:Name",
    "deep/nothing.py:A": r"target file deep/nothing\.py does not exist",
    "deep/spec_file.py:AB": r"spec_file has no 'AB'",
    "spec_raises.A": r"importing spec_raises\.A raised RuntimeError: no such device",
    "spec_exits.A": r"importing spec_exits\.A called sys\.exit\(3\); guard it",
    "spec_lacks.A": r"importing spec_lacks\.A raised ModuleNotFoundError: No module named 'not_installed_anywhere'",
    "specpkg.lacks.A": r"importing specpkg\.lacks\.A raised .*No module named 'not_installed_anywhere'",
    "specpkg.lacks:A": r"importing specpkg\.lacks:A raised .*No module named 'not_installed_anywhere'",
    "specpkg.lacks_sibling.A": r"importing .* raised .*No module named 'specpkg\.not_there'",
}


@pytest.mark.parametrize(("spec", "text"), COMPLAINTS.items())
def test_what_is_wrong_is_said(spec: str, text: str, root: Path) -> None:
    told = complaint(spec, root)
    assert re.search(text, told), told


def test_a_file_that_fails_to_import_fails_again_in_the_same_way(root: Path) -> None:
    first, second = (complaint("deep/spec_broken_file.py:B", root) for _ in range(2))
    assert "half way" in first
    assert second == first


def test_an_interrupt_is_not_swallowed(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        locate("spec_interrupted.A", [root])


def test_a_file_does_not_take_the_place_of_a_library_that_is_loaded(root: Path) -> None:
    import colorsys

    assert locate("deep/colorsys.py:A", [root]).__qualname__ == "A"
    assert sys.modules["colorsys"] is colorsys


@pytest.mark.parametrize("spec", [s for s in SPELLINGS if "[" not in s])
def test_importing_code_imports_it(spec: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    found = locate(spec, [root])
    namespace: dict[str, Any] = {}
    exec(str(importing_code(spec)), namespace)
    assert namespace["Target"] is found


@pytest.mark.parametrize("spec", ["tests.f.<locals>.A", "__main__.A"])
def test_what_nothing_can_import_has_no_code(spec: str) -> None:
    assert importing_code(spec) is None
