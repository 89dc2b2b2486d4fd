"""Removing files: later, and off the loop, because it may take long and nobody waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.storage.environment import Environment

_log = logging.getLogger(__name__)


def remove_later(environment: Environment, path: str, *, delay_ms: int) -> None:
    """Remove the directory with all that is in it. What stays for a failure goes at the next start."""

    def failed(error: BaseException) -> None:
        _log.warning("%s is still there: %s", path, error)

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
