"""Mirror sink: copies of topics, with their partitions, timestamps, headers and order, exactly once.

A task of the source reads whole partitions, so each partition of a copy has one writer without a shuffle.
Before a micro-batch, the driver makes missing copies, and adds the partitions that a source topic has gained.
Each micro-batch is one transaction. It holds the records and the offset syncs, by which the committed offsets
of consumer groups are translated (`mirror_groups`).

A copy takes the settings that its source topic has of its own, except those that belong to a cluster. Its
timestamps are those of the records, so `message.timestamp.type` is CreateTime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.config.definitions.topics import TABLE
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.columns.columns import need
from barnabas.pipelines.spark.columns.single_message import HEADERS
from barnabas.pipelines.spark.context.connectivity_checks import run_apart
from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run, Unavailable
from barnabas.pipelines.spark.context.topics import ensure_topics, opened_cluster
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spark.sinks.mirror_groups import GroupSync
from barnabas.pipelines.spark.sinks.records import marker_topic, sink_options
from barnabas.pipelines.spec.model import Delivery, Part
from barnabas.pipelines.state.durable_files import sync_plan
from barnabas.protocol.config_numbers import ResourceType
from pyspark_barnabas.writers.journal import journaled_offsets

SYNC_TOPIC = "__barnabas_mirror_offsets"
TIMESTAMP_TYPE = "message.timestamp.type"
_OF_CLUSTER = frozenset(
    (
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms", TIMESTAMP_TYPE, "unclean.leader.election.enable",
        "min.insync.replicas", "remote.storage.enable", TABLE,
    )
)  # fmt: skip
"""Settings that are not copied; most of them are those of MirrorMaker's default. A table has one topic."""


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    chosen = _records(rows, part["prefix"])
    options = sink_options(part, run)
    ensure_topics(options, [SYNC_TOPIC], {"cleanup.policy": "compact"}, partitions=1)
    copies = _Copies(source_options(run.spec.source, run), options, part["prefix"])
    extra = {"includeHeaders": "true", **marker_topic(options, run)}

    def take(batch: DataFrame, batch_id: int) -> None:
        checkpoint = run.checkpoint()
        sync_plan(checkpoint, batch_id)
        copies.ensure(journaled_offsets(checkpoint, batch_id))
        named = {**options, **extra}
        if run.spec.delivery is Delivery.EXACTLY_ONCE:
            named |= {
                "delivery": "exactly-once", "pipelineId": run.spec.group_id, "queryId": query_id(batch),
                "batchId": str(batch_id), "checkpointLocation": checkpoint, "offsetSyncTopic": SYNC_TOPIC,
                "offsetSyncPrefix": part["prefix"],
            }  # fmt: skip
        batch.write.format("barnabas").mode("append").options(**named).save()

    sync = GroupSync(part, run, SYNC_TOPIC) if part.get("groups") else None
    return BuiltSink(chosen.writeStream.foreachBatch(take), background=sync)


def _records(rows: DataFrame, prefix: str) -> DataFrame:
    why = "a mirror"
    return rows.select(
        need(rows, "_key", why).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.concat(F.lit(prefix), need(rows, "_topic", why)).alias("topic"),
        need(rows, "_partition", why).cast("int").alias("partition"),
        need(rows, "_headers", why).cast(HEADERS).alias("headers"),
        need(rows, "_timestamp", why).alias("timestamp"),
    )


class _Copies:
    """Topics of the mirror, which follow those of the source."""

    def __init__(self, source: Mapping[str, str], sink: Mapping[str, str], prefix: str) -> None:
        self._source = source
        self._sink = sink
        self._prefix = prefix
        self._counts: dict[str, int] = {}
        """Partitions of the copies, as far as they were seen."""

    def ensure(self, partitions: Iterable[TopicPartition]) -> None:
        """Make copies with at least these partitions."""
        wanted: dict[str, int] = {}
        for topic, partition in partitions:
            wanted[topic] = max(wanted.get(topic, 0), partition + 1)
        missing = {topic for topic, count in wanted.items() if count > self._counts.get(topic, 0)}
        if not missing:
            return
        try:
            run_apart(self._follow(sorted(missing)))
        except ClusterUnreachable as error:
            raise Away(f"no broker can be reached: {error}") from None
        except KafkaError as error:
            kind = Away if error.retriable else Unavailable
            raise kind(f"a topic of the mirror cannot be made: {error.message}") from None

    async def _follow(self, topics: list[str]) -> None:
        async with opened_cluster(self._source) as source, opened_cluster(self._sink) as sink:
            there, here = TopicAdmin(source), TopicAdmin(sink)
            existing = {topic.name: len(topic.partitions) for topic in await here.list_topics()}
            for topic in await there.describe_topics(topics):
                name, count = self._prefix + topic.name, len(topic.partitions)
                if name not in existing:
                    await self._create(there, here, topic.name, count)
                    await sink.topic(name, auto_create=False, unknown_timeout_ms=10_000)
                else:
                    await self._check_timestamps(here, name)
                    if existing[name] < count:
                        await here.add_partitions(name, count)
                self._counts[topic.name] = count

    async def _create(self, there: TopicAdmin, here: TopicAdmin, topic: str, count: int) -> None:
        settings = await there.describe_configs(ResourceType.TOPIC, topic)
        configs = {
            each.name: each.value
            for each in settings
            if not each.is_default and each.source == "topic" and each.value is not None
            if each.name not in _OF_CLUSTER
        }
        try:
            await here.create_topic(
                self._prefix + topic, partitions=count, configs={**configs, TIMESTAMP_TYPE: "CreateTime"}
            )
        except TopicAlreadyExists:
            return

    async def _check_timestamps(self, here: TopicAdmin, name: str) -> None:
        for each in await here.describe_configs(ResourceType.TOPIC, name, [TIMESTAMP_TYPE]):
            if each.value == "LogAppendTime":
                raise PipelineFailed(
                    f"sink: topic {name} replaces the timestamps of its records; set its"
                    f" {TIMESTAMP_TYPE} to CreateTime"
                )
