"""Commands in the documents: each exists, with its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from barnabas.cli.main import cli

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *(REPOSITORY / "docs").glob("*.md"),
    *(REPOSITORY / "examples").glob("*.md"),
]
COMMAND = re.compile(r"(?:^|\| |\$ |`)(barnabas (?:[a-z]+|--\w+)[^`|#\n]*)", re.MULTILINE)
TARGET = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)


def shown(pattern: re.Pattern[str]) -> list[str]:
    return sorted({found.strip() for page in PAGES for found in pattern.findall(page.read_text("utf-8"))})


def commands() -> list[str]:
    return [each for each in shown(COMMAND) if not each.startswith("barnabas ready")]


@pytest.mark.parametrize("line", commands())
def test_a_command_knows_its_options(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        assert found is not None, f"there is no such command: {line}"
        command = found
    known = {
        name
        for parameter in command.get_params(context)
        for name in parameter.opts + parameter.secondary_opts
    }
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_a_release(page: Path) -> None:
    """There is none at an index yet. In a clone, '.[extra]' works."""
    assert "barnabas[" not in page.read_text("utf-8")


def test_commands_are_found_at_all() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("target", shown(TARGET))
def test_a_target_is_in_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
