"""Output of the processes of a cluster, with a quiet stop.

While a cluster stops, its brokers elect leaders, shrink ISRs and change controllers once more for each broker
that leaves. These lines tell an operator nothing, so a stop shows a line for each process. Warnings, errors,
tracebacks and lines of the audit log are shown at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ROUTINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO {2}(?!kafka\.)")
"""An INFO line of `node.log_output`, but for those of the audit log (`kafka.authorizer.logger`)."""


class ClusterOutput:
    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._is_stopping = False

    def say(self, name: str, line: str) -> None:
        if not (self._is_stopping and _ROUTINE.match(line)):
            self._say(name, line)

    def begin_stop(self, brokers: int) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._say("supervisor", f"stopping {brokers} brokers, one after the other")
