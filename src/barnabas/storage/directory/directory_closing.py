"""Closing the logs of one log directory when the broker stops."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from barnabas.storage.log.log import Log

CLOSED_AT_ONCE = 100


def close_logs(logs: Sequence[Log], *, threads: int) -> None:
    """Close them in threads: syncing many files takes long, and syncs at the same time share
    their way to the disk. Some at a time: each that is not on disk yet has its files open."""
    with ThreadPoolExecutor(threads, thread_name_prefix="log-close") as pool:
        for first in range(0, len(logs), CLOSED_AT_ONCE):
            some = logs[first : first + CLOSED_AT_ONCE]
            works = [(log, work) for log in some if (work := log.plan_close()) is not None]
            for log, future in [(log, pool.submit(work)) for log, work in works]:
                log.flush_completed(future.result())
            for log in some:
                log.release()
