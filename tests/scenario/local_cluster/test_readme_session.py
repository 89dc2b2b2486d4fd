"""The section "Three brokers instead of one" of README.md, typed from top to bottom."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Three brokers instead of one\n")[2].partition("\n## ")[0]
COMMAND = re.compile(r"^barnabas ([^#\n]*)(#.*)?$", re.MULTILINE)
REFUSED = "refused here"


def started(words: str, directory: Path) -> ServerProcess:
    where = ["--data-dir", str(directory), "--listener", f"PLAINTEXT://127.0.0.1:{free_ports(3)}"]
    return ServerProcess(
        [sys.executable, "-m", "barnabas", *shlex.split(words), *where, "--console", "off"],
        is_ready=lambda line: line.startswith("barnabas ready: brokers"),
        environment={"PYTHONPATH": str(REPOSITORY / "src")},
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServerProcess]:
    process = started("start --brokers 3", tmp_path)
    yield process
    process.stop()


def test_the_commands_do_what_the_page_says(cluster: ServerProcess) -> None:
    first, blocks = SECTION.partition("```sh\n")[2].partition("\n```\n")[::2]
    assert "barnabas start --brokers 3" in first
    assert "barnabas ready: brokers 1,2,3, …" in blocks
    line = cluster.wait_ready(PATIENCE_S)
    assert line.startswith("barnabas ready: brokers 1,2,3, ")
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found is not None
    commands = COMMAND.findall(blocks.partition("```sh\n")[2].partition("```")[0])
    assert len(commands) >= 5
    for words, comment in commands:
        ended = CliRunner().invoke(cli, ["--bootstrap", found[0], *shlex.split(words)])
        assert ended.exit_code == (1 if REFUSED in comment else 0), f"{words}\n{ended.output}"


def test_a_broker_for_each_core_is_started_as_the_page_says(tmp_path: Path) -> None:
    """Two brokers here, and the partitions of sixteen."""
    (words,) = re.findall(r"^barnabas (start --brokers 16 .*)$", SECTION, re.MULTILINE)
    process = started(words.replace("--brokers 16", "--brokers 2"), tmp_path)
    try:
        found = re.search(r"127\.0\.0\.1:\d+", process.wait_ready(PATIENCE_S))
        assert found is not None
        for command in ("topic create orders", "topic describe orders"):
            ended = CliRunner().invoke(cli, ["--bootstrap", found[0], *command.split()])
            assert ended.exit_code == 0, ended.output
        assert "partitions 16" in ended.output
        assert sorted({line.split()[1] for line in ended.output.splitlines()[2:]}) == ["1", "2"]
    finally:
        process.stop()
