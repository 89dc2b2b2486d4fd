"""Decision records in docs/adr: one form, a complete index, and names that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.named_modules import SOURCE, is_module

REPOSITORY = Path(__file__).resolve().parents[3]
INDEX = (REPOSITORY / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
NO_MODULES = {
    *("advertised.listeners", "auto.create.topics.enable", "compression.type", "spark.task.maxFailures"),
    *(
        "batch.size",
        "batch.num.messages",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    ),
    *("client.py", "constraints.txt", "hatch_build.py", "pyproject.toml"),
    *(
        "asyncio.to_thread",
        "os.sendfile",
        "ssl.SSLContext.wrap_socket",
        "context.allows",
        "context.budget",
        "metrics.counter",
    ),
}
"""Dotted names in backticks that are settings, files, or parts of other libraries and of instances."""
NO_FILES = {"/connector-plugins", "/tmp", "protocol/connection.py"}
"""Paths of HTTP, of other machines and of kazoo."""


class Record(NamedTuple):
    path: Path
    number: int
    title: str
    status: str
    date: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Record:
        text = path.read_text(encoding="utf-8")
        head = re.match(r"# (\d+)\. (.+)\n\nStatus: (.+)\nDate: (\d{4}-\d\d-\d\d)\n\n", text)
        assert head, f"{path.name} does not begin with its title, status and date"
        return cls(path, int(head[1]), head[2], head[3], head[4], text)


PATHS = sorted((REPOSITORY / "docs" / "adr").glob("[0-9]*.md"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_record_has_the_form_of_all(path: Path) -> None:
    record = Record.read(path)
    assert path.name.startswith(f"{record.number:04d}-")
    assert re.findall(r"^## (.+)$", record.text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


def test_the_index_lists_every_record() -> None:
    rows = [
        f"| {record.number} | [{record.title}]({record.path.name}) | {record.status} | {record.date} |"
        for record in map(Record.read, PATHS)
    ]
    assert len(rows) > 30
    assert re.findall(r"^\| \d+ .*$", INDEX, re.MULTILINE) == rows


def test_the_index_names_unused_numbers() -> None:
    used = {Record.read(path).number for path in PATHS}
    unused = sorted(set(range(1, max(used))) - used)
    *others, last = map(str, unused)
    assert f"Numbers {', '.join(others)} and {last} are unused." in INDEX


def documents() -> Iterator[Path]:
    """Documents whose names must exist: a replaced record describes code that is gone."""
    yield REPOSITORY / "CONTRIBUTING.md"
    yield from (path for path in PATHS if not Record.read(path).status.startswith("replaced"))


@pytest.mark.parametrize("path", list(documents()), ids=lambda path: path.stem)
def test_what_a_document_names_exists(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`([^`\s]+)`", text))
    modules = {name for name in named if re.fullmatch(r"[a-z_]+(\.\w+)+", name)} - NO_MODULES
    assert {name for name in modules if not is_module(name)} == set()
    files = {name for name in named if "/" in name and "://" not in name} - NO_FILES
    assert {name for name in files if not is_file(name)} == set()


def is_file(name: str) -> bool:
    """Whether files match this path; `<api>` stands for any name and `{a,b}` for each of them."""
    choice = re.search(r"\{(.+)\}", name)
    if choice:
        return all(is_file(name.replace(choice[0], each)) for each in choice[1].split(","))
    pattern = re.sub(r"<\w+>", "*", name.rstrip("/"))
    return any(True for root in (REPOSITORY, SOURCE / "barnabas") for _ in root.glob(f"{pattern}*"))
