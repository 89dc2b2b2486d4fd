"""Commits of source offsets to the pipeline's group, so that its lag is visible as that of any consumer.

An exactly-once sink commits the offsets with its output. Every other sink has the offsets in its checkpoint
alone. So the driver commits the end offsets of each finished micro-batch to the group `pipeline-<name>`. The
checkpoint still decides where a run begins: a commit that fails costs nothing but a look at the lag.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.admin.groups import Groups
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.context.connectivity_checks import client_of, run_apart
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spec.model import Delivery, Engine
from barnabas.pipelines.spec.options.client_settings import plain_names
from barnabas.pipelines.state.progress import Progress, partition_offsets

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S = 10.0


class GroupCommits:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._was_refused = False

    @property
    def is_needed(self) -> bool:
        spec = self._run.spec
        is_committed_by_sink = spec.sink.type == "topic" and spec.guarantee is Delivery.EXACTLY_ONCE
        return spec.source.type == "topic" and spec.engine is not Engine.SEGMENTS and not is_committed_by_sink

    def commit(self, progress: Progress) -> None:
        offsets = {
            TopicPartition(topic, partition): offset
            for topic, partitions in partition_offsets(progress.offsets).items()
            for partition, offset in partitions.items()
            if offset >= 0
        }
        if not offsets:
            return
        try:
            run_apart(self._send(offsets))
        except (KafkaError, ClusterUnreachable, TimeoutError, OSError) as error:
            level = logging.DEBUG if self._was_refused else logging.WARNING
            logger.log(
                level,
                "pipeline %s: the offsets of batch %d are not committed to group %s, so its lag looks larger"
                " than it is: %s",
                progress.pipeline,
                progress.batch_id,
                self._run.spec.group_id,
                error,
            )
            self._was_refused = True
        else:
            self._was_refused = False

    async def _send(self, offsets: dict[TopicPartition, int]) -> None:
        run, source = self._run, self._run.spec.source
        addresses = [Endpoint.parse(each.strip()) for each in run.bootstrap_of(source).split(",")]
        settings = plain_names(source.get("kafka") or {})
        async with (
            asyncio.timeout(COMMIT_TIMEOUT_S),
            client_of(addresses, dict(settings)) as cluster,
        ):
            await Groups(cluster).commit(run.spec.group_id, offsets)
