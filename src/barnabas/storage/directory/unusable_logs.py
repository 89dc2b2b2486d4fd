"""Logs that are on disk but not in service: `DamagedLog` and `BegunLog`.

A damaged log has segments that hold no valid batches, although the disk returned them without an error. Only
this log is out of service, not its directory. Its files stay: another replica may be better, and an operator
may still recover records. No empty log replaces it: a partition that starts again would hide the loss.
(Apache Kafka does not start with such a log.)

A begun log could not be created, because there was no file descriptor. Its directory may exist already. The
request is refused, and its retry creates the log in the same log directory. A start that finds a log in two
directories cannot choose between them. Without a retry the begun log can be deleted like any other. The next
start opens it as an empty log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from barnabas.storage.files.environment import LogDirectory


class DamagedLog(NamedTuple):
    topic_partition: TopicPartition
    log_directory: LogDirectory
    directory: str
    reason: str
    checkpointed: Mapping[str, int]
    """Offsets by the name of the checkpoint file, kept for the time after a repair."""


class BegunLog(NamedTuple):
    topic_partition: TopicPartition
    log_directory: LogDirectory
    directory: str
