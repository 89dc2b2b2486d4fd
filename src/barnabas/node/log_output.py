"""Log lines for people and for machines: time, level, part of the broker, what happened.

`2026-01-31T12:00:00.123Z INFO  storage.log  orders-0: rolled segment 4711` on standard error;
standard output is left to the one line that says the broker is ready.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from barnabas.config.loggers import AUDIT as AUDIT_LOGGER


class LineFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        record.part = record.name.removeprefix("barnabas.")
        return super().format(record)


def configure_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)-5s %(part)s  %(message)s"))
    for name in ("barnabas", AUDIT_LOGGER):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    # What nobody prints need not be collected for every line.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
