"""A log that was to be made and was not, for want of a file descriptor: its directory may be there already.

Whoever asked for it is refused and asks again, and the log is made where it was begun, wherever a new one
would go by then: a start that finds a log in two directories cannot say which is right. If nobody asks again,
it is deleted like any other; and after a start it is one, of no records.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from barnabas.storage.environment import LogDirectory


class BegunLog(NamedTuple):
    topic_partition: TopicPartition
    log_directory: LogDirectory
    directory: str
