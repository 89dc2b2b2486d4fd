"""docs/TUTORIAL.md: its commands are run, in their order, and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.broker import BarnabasBroker, running
from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]
TUTORIAL = REPOSITORY / "docs" / "TUTORIAL.md"
ADDRESS = "127.0.0.1:9092"
"""Address in the tutorial: that of a broker without settings."""

_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    language: str
    code: str
    shown: list[str]
    """Lines that the output must have, in their order."""


def steps() -> list[Step]:
    """Blocks of the tutorial, without the one that starts the broker."""
    found: list[Step] = []
    for language, code in _BLOCK.findall(TUTORIAL.read_text()):
        if language == "text":
            found[-1].shown.extend(code.splitlines())
        else:
            found.append(Step(language, code, []))
    assert "barnabas start" in found[0].code
    return found[1:]


def test_the_tutorial_works(tmp_path: Path) -> None:
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    command = bin_directory / "barnabas"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
    command.chmod(0o755)
    with running(BarnabasBroker(tmp_path / "tutorial")) as broker:
        environment = {
            **os.environ,
            "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            "BARNABAS_BOOTSTRAP": broker.bootstrap,
            "LC_ALL": "C",
        }
        assert len(steps()) >= 8
        for step in steps():
            code = step.code.replace(ADDRESS, broker.bootstrap)
            arguments = (
                ["bash", "-euo", "pipefail", "-c", code]
                if step.language == "sh"
                else [sys.executable, "-c", code]
            )
            done = subprocess.run(
                arguments,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
            lines = iter(done.stdout.splitlines())
            for wanted in step.shown:
                assert wanted in lines, f"{code}\n{done.stdout}"
