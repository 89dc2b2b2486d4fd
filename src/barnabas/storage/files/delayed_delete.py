"""Delayed deletion of files, in a thread: deletion may take long, and no request waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.storage.files.environment import Environment

logger = logging.getLogger(__name__)


def remove_later(environment: Environment, path: str, *, delay_ms: int) -> None:
    """Remove the directory with all its files. The next start removes the files that a failure leaves."""

    def failed(error: BaseException) -> None:
        logger.warning("cannot delete %s, the next start tries again: %s", path, error)

    environment.scheduler.after(
        delay_ms,
        lambda: environment.background.submit(
            lambda: environment.files.remove_tree(path), lambda _: None, failed
        ),
    )


def unlink_later(
    environment: Environment, paths: Iterable[str], failed: Callable[[BaseException], None], *, delay_ms: int
) -> None:
    def unlink() -> None:
        for path in paths:
            environment.files.unlink(path)

    environment.scheduler.after(
        delay_ms, lambda: environment.background.submit(unlink, lambda _: None, failed)
    )
