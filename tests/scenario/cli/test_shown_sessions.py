"""Sessions in README.md and docs/: every command runs, and prints what the page shows.

A block of the kind `console` has commands after `$ ` and their output, standard output and error together.
`…` stands for any text up to the end of the line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing.broker import run_broker
from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    command: str
    output: list[str]


def sessions() -> Iterator[tuple[str, list[Step]]]:
    for page in PAGES:
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            steps: list[Step] = []
            for line in block.splitlines():
                if line.startswith("$ "):
                    steps.append(Step(line.removeprefix("$ "), []))
                else:
                    steps[-1].output.append(line)
            yield f"{page.name}-{number}", steps


SESSIONS = dict(sessions())


def test_sessions_are_found() -> None:
    assert "README.md-0" in SESSIONS


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A shell in which `barnabas` is this source, with a new broker as the one at the default address."""
    command = tmp_path / "bin" / "barnabas"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
    command.chmod(0o755)
    with run_broker() as broker:
        yield {
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "BARNABAS_BOOTSTRAP": broker.bootstrap,
        }


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_prints_what_is_shown(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    for step in SESSIONS[name]:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", step.command],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{step.command}\n{done.stdout}"
        printed = [line for line in done.stdout.splitlines() if not line.endswith("…")]
        assert len(printed) >= len(step.output), f"{step.command}\n{done.stdout}"
        for line, shown in zip(printed, step.output, strict=False):
            pattern = ".*".join(map(re.escape, shown.split("…")))
            assert re.fullmatch(pattern, line), f"{step.command}\nprinted: {line}\nshown:   {shown}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "printed"), [(0, "b'k1' b'hello' [('lang', b'en')]"), (1, "b'k1' b'hello'")]
)
def test_a_python_example_of_the_readme_prints_its_record(
    number: int, printed: str, environment: dict[str, str], tmp_path: Path
) -> None:
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    session = page.partition("## A first session")[2].partition("\n## ")[0]
    example = re.findall(r"```python\n(.*?)```", session, re.DOTALL)[number]
    program = tmp_path / "example.py"
    program.write_text(example.replace("127.0.0.1:9092", environment["BARNABAS_BOOTSTRAP"]))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout.splitlines() == [printed], done.stderr
