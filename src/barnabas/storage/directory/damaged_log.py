"""A log whose segments make no sense: the bytes are not what a log holds, though the disk gave them readily.

The log alone is out of service, not its directory. Its files stay as they are (another replica may be better,
and somebody may still get at the records), and no empty log takes its place: a partition that seems to begin
anew would hide the loss. (Apache Kafka refuses to start when it meets such a log.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from barnabas.storage.environment import LogDirectory


class DamagedLog(NamedTuple):
    topic_partition: TopicPartition
    log_directory: LogDirectory
    directory: str
    reason: str
    checkpointed: Mapping[str, int]
    """By the name of the checkpoint file: what was known of it, to be known again once it is repaired."""
