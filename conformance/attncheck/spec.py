"""Finding the object that a spec names: `pkg.mod.Name`, `pkg.mod:Name` or `path/file.py:Name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FROM_FILES: set[str] = set()  # names of the modules that file specs have loaded


class BadTarget(Exception):
    """The target cannot be imported or built; the text is what the user reads."""


def split(spec: str) -> tuple[str, str]:
    """'pkg.mod.Name[wide]' -> ('pkg.mod.Name', 'wide')."""
    base, bracket, name = spec.partition("[")
    return base, name.removesuffix("]") if bracket else ""


def locate(spec: str, roots: list[Path]) -> Any:
    """Import what `spec` names; `roots` are searched first, so that a project need not be installed."""
    base, _ = split(spec)
    for root in reversed([str(r) for r in roots]):
        if root not in sys.path:
            sys.path.insert(0, root)
    head, colon, tail = base.rpartition(":")
    try:
        if colon and head.endswith(".py"):
            return _attribute(_from_file(head, roots), tail, spec)
        if colon:
            return _attribute(importlib.import_module(head), tail, spec)
        return _dotted(base, spec)
    except BadTarget:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as stop:
        raise BadTarget(
            f"importing {spec} called sys.exit({stop.code!r}); guard it with if __name__ == '__main__'"
        ) from None
    except Exception as error:
        raise BadTarget(f"importing {spec} raised {type(error).__name__}: {error}") from error


def _dotted(base: str, spec: str) -> Any:
    """The longest importable prefix is the module, the rest are attributes."""
    parts = base.split(".")
    if len(parts) < 2:
        raise BadTarget(f"target={spec!r}: expected pkg.mod.Name, pkg.mod:Name or path/file.py:Name")
    for n in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:n])
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module that is there but lacks a dependency is another matter than one that is not there.
            if error.name is not None and (name == error.name or name.startswith(error.name + ".")) and n > 1:
                continue
            raise BadTarget(f"importing {spec} raised ModuleNotFoundError: {error}") from error
        return _attribute(module, ".".join(parts[n:]), spec)
    raise BadTarget(f"target={spec!r}: no module {parts[0]!r} was found")


def _from_file(path: str, roots: list[Path]) -> ModuleType:
    candidates = [Path(path), *(root / path for root in roots)]
    file = next((c for c in candidates if c.is_file()), None)
    if file is None:
        raise BadTarget(f"target file {path} does not exist")
    if str(file.resolve().parent) not in sys.path:
        sys.path.insert(0, str(file.resolve().parent))
    name = _module_name(file.resolve())
    if _is_from(sys.modules.get(name), file.resolve()):
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, file.resolve())
    if found is None or found.loader is None:
        raise BadTarget(f"target file {path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    FROM_FILES.add(name)
    try:
        found.loader.exec_module(module)
    except BaseException:
        # Half a module would be taken for the whole one the next time.
        del sys.modules[name]
        raise
    return module


def _module_name(file: Path) -> str:
    """The file's own name, unless that would push a library out of its place."""
    known = sys.modules.get(file.stem)
    mine = known is None or file.stem in FROM_FILES or _is_from(known, file)
    return file.stem if mine else f"{file.stem}_target"


def _is_from(module: ModuleType | None, file: Path) -> bool:
    return module is not None and getattr(module, "__file__", None) == str(file)


def _attribute(module: ModuleType, path: str, spec: str) -> Any:
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            from difflib import get_close_matches

            near = get_close_matches(part, [n for n in dir(value) if not n.startswith("_")], 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise BadTarget(f"target={spec!r}: {getattr(value, '__name__', value)} has no {part!r}{hint}")
        value = getattr(value, part)
    return value


def importing_code(spec: str) -> str | None:
    """Lines that import what `spec` names as `Target`, for a reproduction; None where nothing can import it."""
    base, _ = split(spec)
    if "<" in base or base.startswith("__main__."):
        return None
    head, colon, tail = base.rpartition(":")
    if colon and head.endswith(".py"):
        paths, module, name = [str(Path(head).parent)], Path(head).stem, tail
    elif colon:
        paths, module, name = [".", "src"], head, tail
    else:
        parts = base.split(".")
        n = max((n for n in range(1, len(parts)) if ".".join(parts[:n]) in sys.modules), default=len(parts) - 1)
        paths, module, name = [".", "src"], ".".join(parts[:n]), ".".join(parts[n:])
    return f"import sys\n\nsys.path[:0] = {paths!r}\nfrom {module} import {name.split('.')[0]}\n\nTarget = {name}"
