"""The section "A secured broker in five minutes" of docs/SECURITY.md, typed from top to bottom."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]
HEADING = "## A secured broker in five minutes\n"
BLOCK = re.compile(r"^(?:[^\n]*Write `([\w.]+)`[^\n]*\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKENS = "--set delegation.token.secret.key=a-secret-of-the-brokers"


class Reader:
    """A reader of the page, in an empty directory with a shell whose exports last."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._exports = ""
        self._broker: ServerProcess | None = None
        self.output = ""
        """Output of the last command, and of a last command that failed."""
        self.failed: list[str] = []
        command = directory / "bin" / "barnabas"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY / "src"),
        }

    def write(self, name: str, text: str) -> None:
        (self._directory / name).write_text(self._here(text))

    def type(self, line: str) -> None:
        line = self._here(line)
        if line.startswith("barnabas start"):
            self._broker = ServerProcess(
                ["bash", "-c", f"umask 077; exec {line} {TOKENS}"],
                is_ready=lambda said: said.startswith("barnabas ready"),
                environment=self._environment,
                working_directory=self._directory,
            )
            self._broker.wait_ready(PATIENCE_S)
            return
        if line.startswith("export "):
            self._exports += f"{line}; "
            return
        user = re.match(r"barnabas user add (\w+)", line)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"umask 077; {self._exports}{line}"],
            input=f"{user[1]}-secret\n" if user else "",
            cwd=self._directory, env=self._environment, capture_output=True, text=True, check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
        self.output = done.stderr if done.returncode else done.stdout
        if done.returncode:
            self.failed.append(f"{line}\n{done.stderr}")

    def run(self, program: str) -> None:
        self.write("program.py", program)
        self.type(f"{sys.executable} program.py")

    def close(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def _here(self, text: str) -> str:
        return text.replace("9093", str(self._port))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    reader = Reader(tmp_path, free_port())
    yield reader
    reader.close()


def test_the_secured_broker_of_the_page_serves_who_it_should(reader: Reader) -> None:
    page = (REPOSITORY / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    blocks = BLOCK.findall(section)
    assert [kind for _, kind, _ in blocks].count("sh") >= 6
    denied = ""
    for name, kind, text in blocks:
        if kind == "properties":
            reader.write(name, text)
        elif kind == "python":
            reader.run(text)
        elif kind == "sh":
            for line in text.splitlines():
                reader.type(line)
        else:
            assert reader.output == text, "the output that the page shows"
            denied = text
    assert [each.partition("\n")[2] for each in reader.failed] == [denied]
    assert reader.failed[0].startswith("barnabas consume orders ")
