"""The command as a process, as its users run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tests.support.commands import run_command

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Barnabas:
    """Runs `barnabas` with a bootstrap address in its environment."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(SOURCE), "BARNABAS_BOOTSTRAP": bootstrap}

    def start(
        self, *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE, closed: Iterable[int] = ()
    ) -> subprocess.Popen[bytes]:
        """The process, with these file descriptors closed."""

        def prepare() -> None:
            # Under nohup, or in the background of a script, SIGINT is ignored, and children inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            for descriptor in closed:
                os.close(descriptor)

        command = [sys.executable, "-m", "barnabas", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            stdin=pipe,
            stdout=stdout,
            stderr=pipe,
            env=self._environment,
            preexec_fn=prepare,  # noqa: PLW1509 - it touches a signal and file descriptors
        )

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        ended = run_command(*arguments, stdin=stdin, environment=self._environment)
        assert ended.code == code, ended.stderr.decode()
        if code:
            assert ended.stderr.startswith(b"barnabas: ")
            assert ended.stderr.count(b"\n") == 1
            return ended.stderr.decode()
        return ended.stdout.decode()

    def fail(self, *arguments: str) -> str:
        """Errors of a wrong call."""
        with self.start(*arguments) as process:
            _, stderr = process.communicate(timeout=60)
        assert process.returncode != 0
        return stderr.decode()

    def complete(self, environment: dict[str, str]) -> str:
        """Completions that a shell gets through the script of `completion`."""
        entry = "from barnabas.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", entry],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout
