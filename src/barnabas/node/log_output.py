"""Log line format: time, level, part of the broker, message.

`2026-01-31T12:00:00.123Z INFO  storage.log  orders-0: rolled segment 4711` on standard error. Standard output
carries only the ready line. The state-change log may have a file of its own.

A line may show text that a client chose, and log readers parse the beginning of lines, above all those of the
audit log. So control characters are escaped in all lines. The lines of a traceback, which may quote a client
too, are indented: none looks like a line of the broker's own.
"""

from __future__ import annotations

import logging
import sys
import textwrap
from datetime import UTC, datetime
from types import TracebackType

from barnabas.config.dynamic.loggers import AUDIT as AUDIT_LOGGER
from barnabas.core.reporting.log_text import escaped, escaped_lines
from barnabas.core.reporting.state_changes import STATE_CHANGES

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
TRACEBACK_INDENT = "    "


class LineFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        record.part = record.name.removeprefix("barnabas.")
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escaped(super().formatMessage(record))

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802
        return textwrap.indent(escaped_lines(super().formatException(ei)), TRACEBACK_INDENT)


LINE = LineFormatter("%(asctime)s %(levelname)-5s %(part)s  %(message)s")


def configure_logging(level: str, state_change_file: str | None = None) -> None:
    """Raises OSError if the file of the state-change log cannot be opened."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LINE)
    for name in ("barnabas", AUDIT_LOGGER):
        _set_up(name, handler, level.upper())
    if state_change_file is None:
        _set_up(STATE_CHANGES, handler, logging.WARNING)
    else:
        from logging.handlers import WatchedFileHandler  # noqa: PLC0415 - it imports pickle and more, for a start

        # Watched: a program that rotates logs may rename the file.
        in_file = WatchedFileHandler(state_change_file, encoding="utf-8")
        in_file.setFormatter(LINE)
        _set_up(STATE_CHANGES, in_file, logging.INFO)
    # No format prints these fields, so no line collects them.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False


def _set_up(name: str, handler: logging.Handler, level: int | str) -> None:
    logger = logging.getLogger(name)
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
