"""Messages in docs/TROUBLESHOOTING.md: each is in the source as quoted."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs" / "TROUBLESHOOTING.md"
SOURCES = REPOSITORY / "src"

QUOTED = [
    line.split("` |", 1)[0].removeprefix("| `")
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
]


def _text(node: ast.AST) -> str | None:
    """A string of the source, with `…` for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
        return "".join(map(str, parts))
    return None


@cache
def strings() -> str:
    """Each string of the source, on a line of its own."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = _text(node)
            if text:
                found.add(" ".join(text.split()))
    return "\n".join(found)


def stands_in_the_source(quoted: str) -> bool:
    # The source may have a value where the page has a word.
    pattern = re.compile(".*?".join(map(re.escape, quoted.strip("…").split("…"))))
    return pattern.search(strings()) is not None


def test_the_page_is_not_empty() -> None:
    assert len(QUOTED) > 30


def test_each_message_stands_in_the_source() -> None:
    assert [quoted for quoted in QUOTED if not stands_in_the_source(quoted)] == []


def test_an_unused_message_is_noticed() -> None:
    assert not stands_in_the_source("the castle … is closed to land surveyors")
