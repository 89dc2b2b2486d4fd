"""Disk errors of background work, which has no request to refuse (`storage.files.failures`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.failures import RETRY_MS, Reach, reach_of


def keep_trying(environment: Environment, directory: LogDirectory, work: Callable[[], object]) -> None:
    """Repeat the work in a thread until it succeeds or the disk fails."""

    def attempt() -> None:
        if directory.failure is None:
            environment.background.submit(work, lambda _: None, failed)

    def failed(error: BaseException) -> None:
        directory.fail(error)
        if reach_of(error) is Reach.REQUEST:
            environment.scheduler.after(RETRY_MS, attempt)

    attempt()


@contextmanager
def offline_on_error(directory: LogDirectory) -> Iterator[None]:
    """Take the directory offline on any I/O error inside, and suppress the error."""
    try:
        yield
    except (OSError, KafkaStorageError) as error:
        directory.take_offline(error)
