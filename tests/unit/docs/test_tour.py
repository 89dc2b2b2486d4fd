"""docs/TOUR.md: ten stops, whose files and names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
TOUR = REPOSITORY / "docs" / "TOUR.md"
STOPS = 10

_READ = re.compile(r"\[([a-z_/]+\.py)\]\(\.\./src/barnabas/([a-z_/]+\.py)\) \(([^)]*)\)")


def stops() -> list[str]:
    return re.split(r"^## \d+\. ", TOUR.read_text(), flags=re.MULTILINE)[1:]


def names_in(path: Path) -> set[str]:
    """Classes, functions and constants of a module, and the methods of its classes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


def test_there_are_ten_stops_each_with_something_to_read_and_to_try() -> None:
    assert len(stops()) == STOPS
    for stop in stops():
        assert len(_READ.findall(stop)) >= 2, stop
        assert "\nTry: " in stop


@pytest.mark.parametrize(
    ("shown", "path", "names"), [row for stop in stops() for row in _READ.findall(stop)], ids=str
)
def test_files_and_names_exist(shown: str, path: str, names: str) -> None:
    assert shown == path
    known = names_in(REPOSITORY / "src" / "barnabas" / path)
    wanted = re.findall(r"`([A-Za-z_]+)`", names)
    assert wanted
    assert set(wanted) <= known
