"""Stop signals: SIGTERM and SIGINT begin a clean shutdown, which ends within a deadline.

The handler runs between two instructions of the main thread, so it also interrupts a busy loop. It arms a
watchdog thread, which ends the process if the loop does not begin or finish the shutdown in time. Before
that, the watchdog writes the stack of every thread to standard error. The next start recovers the logs, as
after `kill -9`; no acknowledged record is lost.

A thread that never releases the interpreter also stops the watchdog. `faulthandler` then ends the process a
little later: it needs no interpreter, but it reads the stacks of running threads, which can crash.

A second signal of the same kind kills the process at once. One of the other kind does not: Ctrl-C reaches a
broker, and then its supervisor's SIGTERM does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from types import FrameType

from barnabas.core.clock import SystemClock
from barnabas.core.limits import SHUTDOWN_BEGUN_MS_MAX, SHUTDOWN_MS_MAX

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STACKS_MS_MAX = 2_000
"""Time to write the stacks: standard error may be a pipe that no process reads."""
LAST_RESORT_MS = 5_000
"""Delay of `faulthandler` behind the watchdog."""


class StopSignals:
    """Sets `stopped` at the first signal. Use it on the main thread, while its loop runs."""

    def __init__(self, stopped: asyncio.Event) -> None:
        self._stopped = stopped
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog()

    def __enter__(self) -> None:
        self._watchdog.start()
        for signum in STOP_SIGNALS:
            signal.signal(signum, self._received)

    def __exit__(self, *_: object) -> None:
        for signum in STOP_SIGNALS:
            _restore_default(signum)
        self._watchdog.close()

    def _received(self, signum: int, _: FrameType | None) -> None:
        _restore_default(signum)
        self._watchdog.end_after(SHUTDOWN_BEGUN_MS_MAX)
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(signum))

    def _stop(self, signum: signal.Signals) -> None:
        logger.info("%s: shutting down", signum.name)
        self._watchdog.end_after(SHUTDOWN_MS_MAX)
        self._stopped.set()


def _restore_default(signum: int) -> None:
    is_interrupt = signum == signal.SIGINT
    signal.signal(signum, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


class Watchdog:
    """Ends the process at a deadline, which `end_after` can move.

    A signal handler may call `end_after`: it only assigns, and releases a lock, which never waits.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._deadline_ms = 0.0
        self._armed = threading.Lock()
        self._closed = threading.Lock()

    def start(self) -> None:
        self._armed.acquire()
        self._closed.acquire()
        try:
            threading.Thread(target=self._watch, name="shutdown watchdog", daemon=True).start()
        except RuntimeError:
            logger.warning("cannot start the shutdown watchdog: if the shutdown hangs, no stacks are written")

    def end_after(self, duration_ms: float) -> None:
        self._deadline_ms = self._clock.monotonic_ms() + duration_ms
        _end_as_a_last_resort(duration_ms + LAST_RESORT_MS)
        self._wake()

    def close(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._closed.release()
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # a second signal can release the lock first
            self._armed.release()

    def _watch(self) -> None:
        self._armed.acquire()
        while (left_ms := self._deadline_ms - self._clock.monotonic_ms()) > 0:
            if self._closed.acquire(timeout=left_ms / 1_000):
                return
        if self._closed.acquire(blocking=False):
            return
        try:
            writer = threading.Thread(target=write_stacks, name="stacks", daemon=True)
            writer.start()
            writer.join(STACKS_MS_MAX / 1_000)
        finally:
            os._exit(1)


def write_stacks() -> None:
    """Write the stack of every thread to standard error, where a supervisor keeps it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = ["the shutdown took too long; stacks of all threads:\n"]
    for ident, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(ident, ident)}:\n")
        lines.extend(traceback.format_stack(frame))
    # Python's own standard error: another file may have taken the number 2 of a closed one.
    if sys.__stderr__ is not None:
        os.write(sys.__stderr__.fileno(), "".join(lines).encode(errors="replace"))


def _end_as_a_last_resort(duration_ms: float) -> None:
    try:
        faulthandler.dump_traceback_later(duration_ms / 1_000, exit=True)
    except (ValueError, RuntimeError, AttributeError):
        # Standard error is not a file: another program runs the broker inside its own process.
        logger.debug("standard error is not a file: faulthandler cannot watch the shutdown")
