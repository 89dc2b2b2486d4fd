"""Folders of the source layer: none imports another in a cycle, and each holds about a dozen modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
LISTINGS = {
    "barnabas.handlers": "one file for each API",
    "barnabas.protocol.messages": "one file for each API",
}
"""Folders whose listing is a table of contents."""
FILES_MAX = 15
ROOT = "barnabas"
"""Its `__init__` has the version, and its `__main__` calls the command line."""


def test_folders_import_each_other_in_one_direction() -> None:
    imports: defaultdict[str, set[str]] = defaultdict(set)
    known = modules()
    for module, path in known.items():
        for imported in imported_by(path, known):
            imports[folder_of(module)].add(folder_of(imported))
    graph = {
        folder: {each for each in found if each not in (folder, ROOT)}
        for folder, found in imports.items()
        if folder != ROOT
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_a_folder_holds_about_a_dozen_modules() -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    for module, path in modules().items():
        if path.name != "__init__.py":
            counts[folder_of(module)] += 1
    crowded = {folder: count for folder, count in counts.items() if count > FILES_MAX}
    assert crowded.keys() <= LISTINGS.keys(), crowded


def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    return module if (SOURCE / Path(*module.split("."))).is_dir() else module.rpartition(".")[0]


def imported_by(path: Path, known: Container[str]) -> Iterator[str]:
    """The modules of ours that a module imports anywhere, types included."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names] + [node.module]
        found = [name for name in names if name in known]
        yield from found[:-1] if isinstance(node, ast.ImportFrom) and len(found) > 1 else found
