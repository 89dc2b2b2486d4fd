"""Another client, in a process of its own: it asks for ApiVersions all the time, and notes how long it waits.

On a machine that others use, a wait says little about the broker. So beside each wait stands how long the
broker's loop was on a processor meanwhile: what it computed while the prober waited is the smaller of both.
Each wait is a line: when it began, how long it was, how long the loop worked.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.connection import Closed, Connection

PERIOD_S = 0.004


class Wait(NamedTuple):
    began_s: float
    waited_s: float
    worked_s: float

    @property
    def busy_s(self) -> float:
        return min(self.waited_s, self.worked_s)


class Prober:
    def __init__(self, port: int, pid: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.prober", str(port), str(pid)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._waits: list[Wait] = []
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._waits.append(Wait(*map(float, line.split())))

    def taken(self) -> list[Wait]:
        """Waits since the last call; each is reported once."""
        found, self._waits = self._waits, []
        return found

    def is_served(self, patience_s: float) -> bool:
        """Whether an answer comes within this time."""
        deadline_s = time.monotonic() + patience_s
        before = len(self._waits)
        while time.monotonic() < deadline_s:
            if len(self._waits) > before + 1:
                return True
            if self._process.poll() is not None:
                return False
            time.sleep(0.01)
        return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(5.0)
        if self._process.stdout is not None:
            self._process.stdout.close()


def worked_s(pid: int) -> float:
    """Of the process's first thread, which runs the loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    port, pid = map(int, sys.argv[1:])
    connection = Connection(port, "prober", 600.0)
    while True:
        began_s, began_work_s = time.monotonic(), worked_s(pid)
        connection.ask_raw(18, 0, b"")
        waited_s = time.monotonic() - began_s
        print(f"{began_s} {waited_s} {worked_s(pid) - began_work_s}", flush=True)
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    try:
        main()
    except (Closed, OSError, KeyboardInterrupt):
        sys.exit(1)
