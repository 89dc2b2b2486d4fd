"""Parts of a broker that questions read, and what is remembered between questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.group.offsets.remote_end_offsets import RemoteEndOffsets
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.inspection.latencies import Latencies
from barnabas.inspection.rates import Rates
from barnabas.inspection.viewer import Viewer
from barnabas.requests.services import Services
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_search import timestamp_of

TIMES_REMEMBERED_MAX: Final = 200_000


class Inspected:
    def __init__(
        self, services: Services, metrics: Metrics, connections: Callable[[], int], remote: RemoteEndOffsets
    ) -> None:
        self.broker = services
        self.metrics = metrics
        self.connections = connections
        self.remote = remote
        """End offsets of partitions without a replica here."""
        self.rates = Rates(services.clock)
        self.latencies = Latencies(metrics, services.clock)
        self._times: dict[tuple[TopicPartition, Uuid, int], int | None] = {}
        """By offset of a log. The topic id tells a topic from an earlier one of its name."""

    def viewer(self, question: dict[str, Any]) -> Viewer:
        return Viewer(self.broker.authorizer, question.get("principal"))

    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        """High watermark; None if it is not known here."""
        local = self.broker.replicas.find(topic_partition)
        if local is not None and local.log.log_directory.failure is None:
            return local.log.high_watermark
        return self.remote.end_offset(topic_partition)

    def written_ms(self, topic_partition: TopicPartition, offset: int) -> int | None:
        """Time of the first record at or behind `offset`; None if it is not known here.

        Many groups of a topic stand at the same offset, and a group that stands still is asked for again."""
        local = self.broker.replicas.find(topic_partition)
        if local is None or local.log.log_directory.failure is not None:
            return self.remote.passed_ms(topic_partition, offset)
        at = max(offset, local.log.log_start_offset)
        key = topic_partition, local.topic_id, at
        if key not in self._times:
            if len(self._times) >= TIMES_REMEMBERED_MAX:
                self._times.clear()
            self._times[key] = _time_at(local.log, at)
        return self._times[key]


def _time_at(log: Log, offset: int) -> int | None:
    found = timestamp_of(log, offset)
    return None if found is None or found < 0 else found
