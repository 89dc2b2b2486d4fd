"""Lag of each pipeline, computed from the cluster every few seconds.

A paused, stopped or failed pipeline sends no report, and one in a long micro-batch reports late, while its
source grows. So the lag is the distance from the pipeline's positions to the ends of its partitions, in any
state. The service can query only its own cluster. For a source with its own brokers or credentials, the lag
is that of the last report while the pipeline runs, and unknown otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.pipelines.service.declarative.log_ends import LogEnds
from barnabas.pipelines.service.declarative.positions import reached, unread_records
from barnabas.pipelines.service.errors import AWAY
from barnabas.pipelines.service.positions import Positions
from barnabas.pipelines.service.store import Stored
from barnabas.pipelines.service.supervisor import State, Supervised
from barnabas.pipelines.spec.declarative.project import known_project
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

logger = logging.getLogger(__name__)

PERIOD_S: Final = 5.0
QUERY_TIMEOUT_S: Final = 5.0


class Lags:
    def __init__(
        self,
        positions: Positions,
        ends: LogEnds,
        pipelines: Callable[[], Iterable[tuple[Stored, Supervised]]],
    ) -> None:
        self._positions = positions
        self._ends = ends
        self._pipelines = pipelines

    async def keep(self) -> None:
        """Refresh the lags periodically, without end."""
        while True:
            await asyncio.sleep(PERIOD_S)
            with sweeping("refreshing the lags of pipelines"):
                await self.refresh()

    async def refresh(self) -> None:
        ends: dict[str, dict[TopicPartition, int] | None] = {}
        for stored, pipeline in list(self._pipelines()):
            if pipeline.spec.project_file is None and not _can_ask(pipeline.spec):
                if pipeline.state is not State.RUNNING:
                    pipeline.lag = None
                continue
            try:
                async with asyncio.timeout(QUERY_TIMEOUT_S):
                    if pipeline.spec.project_file is not None:
                        pipeline.lag = await self._project_lag(Path(pipeline.spec.project_file))
                    else:
                        pipeline.lag = await self._lag(stored, pipeline, ends)
            except (*AWAY, TimeoutError) as error:
                logger.debug("pipeline %s: the lag is unknown: %s", stored.name, error)
                pipeline.lag = None

    async def _project_lag(self, file: Path) -> int | None:
        project = await asyncio.to_thread(known_project, file)
        if project is None:
            return None
        found = await asyncio.to_thread(reached, project.storage)
        return await unread_records(found, project.topics, self._ends)

    async def _lag(
        self, stored: Stored, pipeline: Supervised, ends: dict[str, dict[TopicPartition, int] | None]
    ) -> int | None:
        spec = pipeline.spec
        positions = await self._positions.of_topics(stored, spec, pipeline.progress)
        names = spec.source.get("topics") or sorted({topic_partition.topic for topic_partition in positions})
        total = 0
        for name in names:
            if name not in ends:
                ends[name] = None  # after an error, this round does not query the topic again
                ends[name] = await self._ends.offsets(name, LATEST)
            last = ends[name]
            if last is None:
                return None
            waiting = await self._waiting(name, last, positions, spec)
            if waiting is None:
                return None
            total += waiting
        return total if names else None

    async def _waiting(
        self,
        topic: str,
        last: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
        spec: PipelineSpec,
    ) -> int | None:
        """Lag in one topic. A partition without a position starts where the spec says."""
        default = LATEST if spec.source.get("starting_offsets") == "latest" else EARLIEST
        reads = {topic_partition: positions.get(topic_partition, default) for topic_partition in last}
        if any(offset == LATEST for offset in reads.values()) and not positions:
            return None  # the position is looked up when the pipeline starts
        first: Mapping[TopicPartition, int] = {}
        if any(offset == EARLIEST for offset in reads.values()):
            first = await self._ends.offsets(topic, EARLIEST)
        begins = {EARLIEST: first, LATEST: last}
        return sum(
            max(
                0,
                end
                - (
                    reads[topic_partition]
                    if reads[topic_partition] >= 0
                    else begins[reads[topic_partition]].get(topic_partition, 0)
                ),
            )
            for topic_partition, end in last.items()
        )


def _can_ask(spec: PipelineSpec) -> bool:
    source = spec.source
    return source.type == "topic" and not source.get("bootstrap") and not source.get("kafka")
