"""State-change log: every change of a partition or a replica, of the controller and of the broker.

The logger has Apache Kafka's name, so Kafka's settings for it mean the same here. It reconstructs a failover:
the controller's line has the decision, the broker's line has the moment when it took effect. A cluster writes
one line per partition and change, so the lines need their own file (`state.change.log.file`). Without it the
level is WARN, which none of them has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

STATE_CHANGES: Final = "state.change.logger"
"""Name of the logger."""

logger: Final = logging.getLogger(STATE_CHANGES)


def numbers(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids)))
