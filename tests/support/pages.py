"""Blocks of the pages in docs/, and a shell in which a reader types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Lines without their comments."""
        return [line for each in self.text.splitlines() if (line := each.partition("  #")[0].strip())]


def blocks(name: str, language: str | None = None) -> list[Block]:
    """Blocks of a page in their order, such as those of "docs/TLS.md"."""
    found = [Block(*each) for each in _BLOCK.findall((REPOSITORY / name).read_text(encoding="utf-8"))]
    return [each for each in found if language in (None, each.language)]


class Shell:
    """A shell with `barnabas` and `python` of this source, in a directory of the test."""

    def __init__(self, directory: Path, bootstrap: str | None = None) -> None:
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir()
        for name, words in (("barnabas", "-m barnabas"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
        }
        if bootstrap is not None:
            self.environment["BARNABAS_BOOTSTRAP"] = bootstrap

    def run(self, script: str, *, code: int = 0, timeout_s: float = PATIENCE_S) -> str:
        """Standard output of a script, whose every command must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == code, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout
