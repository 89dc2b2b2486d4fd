"""Quiet end of the process that plans a stream, once the JVM has closed its connection.

Spark stops that process by closing the connection between them. The process reports the end of its input to
the JVM as an error. Over a closed connection that is a second error, and Python prints both as a traceback.
It happens if the JVM closes while the process answers, and so depends on the moment of a stop.

No query waits for that report. An error of the reader itself is different: it reaches the JVM, or is printed.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final

CLOSED: Final = (EOFError, ConnectionError)
"""Errors of a process that reads from a connection which the JVM has closed."""


def end_quietly_after_close() -> None:
    """Print no traceback about the closed connection, if it is what ends this process.

    Spark stops a reader while it handles the error that ends the process.
    """
    if not isinstance(sys.exception(), CLOSED):
        return
    report = sys.excepthook

    def report_other_errors(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not issubclass(kind, ConnectionError):
            report(kind, error, traceback)

    sys.excepthook = report_other_errors
