"""What is done about an error that nobody was there to hear of (`storage.failures` tells whose it is)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.failures import RETRY_MS, Reach, reach_of


def keep_trying(environment: Environment, directory: LogDirectory, work: Callable[[], object]) -> None:
    """Do the work off the loop, as often as it takes; a failing disk is the end of it."""

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
    """An I/O error inside takes the directory offline, whatever it is, and goes no further."""
    try:
        yield
    except (OSError, KafkaStorageError) as error:
        directory.take_offline(error)
