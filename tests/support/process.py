"""A server process under test: started, awaited, stopped, killed; its output kept.

The output goes through a pipe that a thread drains, so the server never blocks on a full pipe
and the wait for its ready line needs no polling.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tests.support.waiting import PATIENCE_S

OUTPUT_LINES_KEPT = 2_000


class ServerProcess:
    """One run of a server. Not restartable: a new run is a new object."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        is_ready: Callable[[str], bool] = lambda line: False,
        environment: Mapping[str, str] | None = None,
        working_directory: os.PathLike[str] | None = None,
    ) -> None:
        self._is_ready = is_ready
        self._ready = threading.Event()
        self.ready_line: str | None = None
        self.was_killed = False
        self.output: deque[str] = deque(maxlen=OUTPUT_LINES_KEPT)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=working_directory,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def output_text(self) -> str:
        return "".join(self.output)

    def wait_ready(self, timeout_s: float) -> str:
        """The ready line; raises with the server's output when it ends or stays silent instead."""
        self._ready.wait(timeout_s)
        if self.ready_line is not None:
            return self.ready_line
        state = "is silent" if self.is_running else f"ended with exit code {self._process.wait()}"
        self.kill()
        raise RuntimeError(f"the server {state} instead of becoming ready:\n{self.output_text()}")

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        """Asks it to end (SIGTERM), returns the exit code; one that does not end is killed and reported."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"no end {timeout_s} s after SIGTERM:\n{self.output_text()}") from None
        self._close()
        return code

    def wait(self, timeout_s: float) -> int:
        """The exit code of one that ends by itself, or by a signal that was sent already."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"no end in {timeout_s} s:\n{self.output_text()}") from None
        self._close()
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said goodbye to."""
        if self.is_running:
            self.was_killed = True
            self._process.kill()
        self._process.wait()
        self._close()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            if self.ready_line is None and self._is_ready(line):
                self.ready_line = line.rstrip("\n")
                self._ready.set()
        self._ready.set()

    def _close(self) -> None:
        self._reader.join(10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
