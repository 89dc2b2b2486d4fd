"""Blocks of README.md that no other test runs: the first lines of a broker, also of the secured one in
docs/SECURITY.md, kcat, the terminal's tools, a cluster inside a test.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BarnabasBroker, running
from tests.support.pages import Block, Shell, blocks
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(BarnabasBroker(tmp_path / "data")) as broker:
        yield Shell(tmp_path, broker.bootstrap)


def block(language: str, word: str) -> Block:
    (found,) = (each for each in blocks("README.md", language) if word in each.text)
    return found


def test_kcat_writes_and_reads(shell: Shell) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    code = block("sh", "kcat -P").text.replace("127.0.0.1:9092", shell.environment["BARNABAS_BOOTSTRAP"])
    assert "hello" in shell.run(code).splitlines()


def test_the_tools_of_the_terminal_measure_and_show(shell: Shell) -> None:
    pytest.importorskip("duckdb")
    live, *measured, query = block("sh", "barnabas perf").commands
    assert live == "barnabas top"
    assert len(measured) == 2
    shell.run("printf 'k1:hello\\nk1:again\\n' | barnabas produce greetings --key-separator :")
    for each in measured:
        line = re.sub(r"--records (\d+)000", r"--records \1", each)
        assert "records" in shell.run(line)
    assert re.search(r"k1\D+2", shell.run(query))


def test_a_cluster_inside_a_test_survives_its_leader(shell: Shell) -> None:
    (shell.directory / "cluster.py").write_text(block("python", "run_cluster(3)").text)
    shell.run("python cluster.py", timeout_s=PATIENCE_S)


def test_a_test_kit_is_used_as_its_page_begins(shell: Shell) -> None:
    first = next(each for each in blocks("docs/TESTING.md", "python") if "def test_" not in each.text)
    (shell.directory / "kit.py").write_text(first.text)
    assert re.search(r"127\.0\.0\.1:\d+", shell.run("python kit.py"))


def like(shown: str, home: Path) -> re.Pattern[str]:
    """Pattern of the lines of a page: numbers differ, `~` is the reader's home, and `…` any text."""
    lines = re.escape(shown.replace("~", str(home))).replace("…", ".*")
    return re.compile(re.sub(r"\d+", r"\\d+", lines))


@pytest.mark.parametrize(
    ("page", "first", "options"),
    [
        ("README.md", "PLAINTEXT", ["--console", "127.0.0.1:{console}"]),
        ("docs/SECURITY.md", "SASL_SSL", ["--secure"]),
    ],
)
def test_a_broker_begins_with_the_lines_that_are_shown(
    page: str, first: str, options: list[str], tmp_path: Path
) -> None:
    if "--secure" in options:
        pytest.importorskip("cryptography")
    port = free_ports(2)
    shown = next(each.text for each in blocks(page, "") if f"listeners {first}://" in each.text)
    given = [each.format(console=port + 1) for each in options]
    home = tmp_path / "h"  # without a digit
    process = ServerProcess(
        [sys.executable, "-m", "barnabas", "start", "--listener", f"{first}://127.0.0.1:{port}", *given],
        is_ready=lambda line: line.startswith("barnabas ready"),
        environment={**Shell(tmp_path).environment, "HOME": str(home), "XDG_DATA_HOME": ""},
    )
    try:
        pattern = like(shown, home)
        eventually(
            lambda: re.search(pattern, process.output_text()) is not None, shown, report=process.output_text
        )
    finally:
        process.stop()
