"""Child processes that do not outlive their parent.

A child leads a session of its own, so Ctrl-C in the terminal reaches only the parent, which then stops its
children in order. If the parent is killed, the kernel kills the child too. An unsupervised broker or
ZooKeeper would hold its port and its data against the next start. (Linux does that by `prctl`; elsewhere a
killed parent leaves its children behind.)

The parent receives both outputs line by line.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

LINE_BYTES_MAX = 1 << 20
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

_STOPPED = (0, 128 + signal.SIGTERM)
"""Exit codes of a child that has shut down when it was told to. A JVM ends with the second one."""

Say = Callable[[str], None]


class ChildEnded(Exception):
    """A child ended before it was ready."""


class Child:
    """One run of a command; another run is another object."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, say: Say, is_ready_line: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.ready_line: str | None = None
        self._process = process
        self._say = say
        self._is_ready_line = is_ready_line
        self._last_line = ""
        self._told = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        say: Say,
        is_ready_line: Callable[[str], bool] = lambda _: False,
        *,
        environment: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
    ) -> Child:
        """Start the command, with `environment` beside its own and the file descriptors `inherited`."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_dying_with(os.getpid()),
            env={**os.environ, **(environment or {})},
            pass_fds=inherited,
            limit=LINE_BYTES_MAX,
        )
        return cls(name, process, say, is_ready_line)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait_ready(self) -> str:
        """Wait for the ready line and return it; ChildEnded if the child ends first."""
        await self._told.wait()
        if self.ready_line is None:
            await self.wait()
            raise ChildEnded(self.epitaph())
        return self.ready_line

    async def wait(self) -> None:
        """Wait until the child has ended and all its output is delivered."""
        await asyncio.shield(self._reading)

    async def stop(self, timeout_s: float) -> None:
        """Terminate the child; kill it after `timeout_s`."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            self._say(f"did not end within {timeout_s:.0f} s; killing it")
            self.send(signal.SIGKILL)
            await self.wait()

    def send(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signum)

    def epitaph(self) -> str:
        """Exit status of the child, with its last line of output. A killed child has written no reason."""
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return f"{self.name} was ended by SIGKILL"
        how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with code {code}"
        words = self._last_line.removeprefix("barnabas: ")
        return f"{self.name} {how}" + (f": {words}" if words else "")

    def farewell(self) -> str:
        """End of a child that was to stop."""
        return f"{self.name} has stopped" if self._process.returncode in _STOPPED else self.epitaph()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # longer than the limit of a line
                continue
            if not line:
                break
            self._hear(line.decode(errors="replace").rstrip("\r\n"))
        await self._process.wait()
        self._told.set()

    def _hear(self, line: str) -> None:
        self._last_line = line
        self._say(line)
        if self.ready_line is None and self._is_ready_line(line):
            self.ready_line = line
            self._told.set()


def _dying_with(parent: int) -> Callable[[], None]:
    """Code that runs in the child between fork and exec."""

    def ask_the_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before the `prctl` call

    return ask_the_kernel
