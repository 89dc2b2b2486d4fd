"""Delayed deletion of files, in a thread: deletion may take long, and no request waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from barnabas.core.scheduler import NotBegun
from barnabas.storage.files.environment import Environment

logger = logging.getLogger(__name__)


def remove_later(environment: Environment, path: str, *, delay_ms: int) -> None:
    """Remove the directory with all its files. The next start removes the files that a failure leaves."""

    def failed(error: BaseException) -> None:
        logger.warning("cannot delete %s, the next start tries again: %s", path, error)

    _submit_later(environment, lambda: environment.files.remove_tree(path), failed, delay_ms)


def unlink_later(
    environment: Environment, paths: Iterable[str], failed: Callable[[BaseException], None], *, delay_ms: int
) -> None:
    def unlink() -> None:
        for path in paths:
            environment.files.unlink(path)

    _submit_later(environment, unlink, failed, delay_ms)


def _submit_later(
    environment: Environment,
    work: Callable[[], None],
    failed: Callable[[BaseException], None],
    delay_ms: int,
) -> None:
    """A deletion that is due while the broker shuts down is left to the next start."""

    def submit() -> None:
        with suppress(NotBegun):
            environment.background.submit(work, lambda _: None, failed)

    environment.scheduler.after(delay_ms, submit)
