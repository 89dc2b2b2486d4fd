"""Spark's daemon of task workers, with what all of them need imported before they are forked.

Spark forks the Python workers of tasks from a daemon that has imported next to nothing, so each of them
imports Spark's own worker, pyarrow, numpy and this package again: half a second of CPU. This daemon, which
`spark.python.daemon.module` may name where the package is installed, imports first and forks after.

A fork copies one thread, and whatever lock another one holds stays locked in the child for ever. So nothing
that is imported here may start a thread: numpy's linear algebra is told to use one (Spark tells its workers
so as well), and the allocator inside pyarrow to tidy up in the foreground. Should there be a thread all the
same, of another version of either, or should it not be known, this process becomes Spark's own daemon.

A worker and the JVM speak over TCP, and each tells the other what a task is in several small pieces. A sender
keeps a small piece back until the one before it is acknowledged, and who has nothing to answer acknowledges
late: 40 ms of every task, a third of a small micro-batch, in which nobody does anything. So workers that come
from here send what they have, and acknowledge what they get, at once.
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
    "pyspark_barnabas.reader",
    "pyspark_barnabas.stream_reader",
    "pyspark_barnabas.sink",
    "pyspark_barnabas.writer",
)
THREADS: Final = Path("/proc/self/task")
ACKNOWLEDGE_AT_ONCE: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux alone has it."""

Worker = Callable[[socket.socket, bool], int]


def preload() -> bool:
    """Import what workers need; says whether forking is as safe as it was before."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    # Standard output is where Spark reads the daemon's port.
    with contextlib.redirect_stdout(sys.stderr):
        for name in NEEDED:
            importlib.import_module(name)
    return is_alone()


def is_alone() -> bool:
    """Whether this process is known to have one thread."""
    try:
        return len(list(THREADS.iterdir())) == 1
    except OSError:
        return False


def prompt(worker: Worker) -> Worker:
    """Spark's loop of a worker, which is called anew for every task, on a connection that does not wait."""

    def work(connection: socket.socket, authenticated: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if ACKNOWLEDGE_AT_ONCE is not None:
                # The kernel takes it back whenever the worker answers: at the end of each task.
                connection.setsockopt(socket.IPPROTO_TCP, ACKNOWLEDGE_AT_ONCE, 1)
        return worker(connection, authenticated)

    return work


def main() -> None:
    if not preload():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606
    # Objects that are there for good are left alone by every worker's collector, and their pages shared.
    gc.collect()
    gc.freeze()
    import pyspark.daemon  # noqa: PLC0415 - after everything that might go wrong

    pyspark.daemon.worker = prompt(pyspark.daemon.worker)  # type: ignore[assignment]
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
