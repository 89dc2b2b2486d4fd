"""Spark's daemon for Python workers, with the imports of all workers done before the fork.

Spark forks the Python workers of tasks from a daemon that has imported almost nothing. Each worker then
imports Spark's worker module, pyarrow, numpy and this package: half a second of CPU.
`spark.python.daemon.module` may name this daemon, where the package is installed; it imports first and forks
afterwards.

A fork copies one thread. A lock that another thread holds stays locked in the child for ever. So no import
here may start a thread. Environment variables limit numpy's linear algebra to one thread, as Spark does for
its workers. They also keep pyarrow's allocator from starting a background thread. If the process has more
threads, or their number is unknown, it becomes Spark's own daemon.

A worker and the JVM exchange the description of a task over TCP in several small pieces. Nagle's algorithm
holds a small piece back until the previous one is acknowledged, and the receiver delays its acknowledgement.
Each task then idles for 40 ms, a third of a small micro-batch. So workers of this daemon send and acknowledge
at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
NEEDED: Final = (
    "pyspark.worker",
    "pyarrow.compute",
    "pyspark_barnabas.readers.batch_reader",
    "pyspark_barnabas.readers.stream_reader",
    "pyspark_barnabas.writers.sink",
    "pyspark_barnabas.writers.writer",
)
THREADS: Final = Path("/proc/self/task")
ACKNOWLEDGE_AT_ONCE: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""TCP_QUICKACK exists on Linux only."""

Worker = Callable[[socket.socket, bool], int]


def preload() -> bool:
    """Import the modules of the workers; returns whether a fork is still safe."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    # Standard output is where Spark reads the daemon's port.
    with contextlib.redirect_stdout(sys.stderr):
        for name in NEEDED:
            importlib.import_module(name)
    return is_alone()


def is_alone() -> bool:
    """True if this process is known to have exactly one thread."""
    try:
        return len(list(THREADS.iterdir())) == 1
    except OSError:
        return False


def prompt(worker: Worker) -> Worker:
    """Spark's worker loop, called for every task, on a connection that sends and acknowledges at once."""

    def work(connection: socket.socket, authenticated: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if ACKNOWLEDGE_AT_ONCE is not None:
                # The kernel clears the flag whenever the worker sends: at the end of each task.
                connection.setsockopt(socket.IPPROTO_TCP, ACKNOWLEDGE_AT_ONCE, 1)
        return worker(connection, authenticated)

    return work


def main() -> None:
    if not preload():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606
    # Frozen objects are skipped by the garbage collector of every worker, so their pages stay shared.
    gc.collect()
    gc.freeze()
    import pyspark.daemon  # noqa: PLC0415 - after the preload, which may fail

    pyspark.daemon.worker = prompt(pyspark.daemon.worker)  # type: ignore[assignment]
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
