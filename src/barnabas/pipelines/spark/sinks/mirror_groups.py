"""Translation of committed offsets for a mirror: a consumer group can move to the copies.

Every `sync_interval`, and when the pipeline stops, the offsets that the groups have committed at the source
are translated (`pipelines.state.offset_syncs`) and committed at the mirror. As in MirrorMaker, a group with
members at the mirror is left alone, and no offset moves back: a group that has moved commits its own.

A failure costs nothing but the age of the translated offsets, so it is logged and does not stop the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Mapping
from contextlib import suppress

from barnabas.client.admin.groups import Groups
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import GroupIdNotFound, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.context.topics import opened_cluster
from barnabas.pipelines.spark.sinks.records import sink_options
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.option import duration_ms
from barnabas.pipelines.state.offset_syncs import Sync, place_of, translated
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange, read_range
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import Options, cluster_config

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_IDLE = frozenset(("Empty", "Dead"))


class GroupSync:
    """Thread that translates committed offsets."""

    def __init__(self, part: Part, run: Run, sync_topic: str) -> None:
        self._name = run.spec.name
        self._own_groups = frozenset(run.spec.own_groups)
        self._group = run.spec.group_id
        self._wanted = re.compile(part["groups"])
        self._prefix: str = part["prefix"]
        self._interval_s = duration_ms(part["sync_interval"]) / 1_000
        self._source = source_options(run.spec.source, run)
        self._sink = sink_options(part, run)
        self._topic = TopicPartition(sync_topic, 0)
        self._position: int | None = None
        self._syncs: dict[TopicPartition, dict[str, Sync]] = {}
        """Syncs of each source partition by key, in the order of writing: a later record replaces."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"group offsets of {self._name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after a last translation."""
        self._stopped.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(self._interval_s)
            try:
                self.translate()
            except (KafkaError, ClusterUnreachable, TimeoutError, OSError, ValueError) as error:
                logger.warning(
                    "pipeline %s: the committed offsets of groups are not translated now: %s",
                    self._name,
                    error,
                )

    def translate(self) -> None:
        """Translate the offsets of all wanted groups once."""
        ends = self._read_syncs()
        asyncio.run(self._translate(ends))

    def _read_syncs(self) -> dict[TopicPartition, int]:
        """Read new syncs; returns the ends of the copies, beyond which no offset is committed."""
        client = {name: text for name, text in self._sink.items() if name.startswith("kafka.")}
        with Cluster(cluster_config(Options(client))) as cluster:
            begin = self._position
            if begin is None:
                begin = cluster.list_offsets({self._topic: EARLIEST})[self._topic]
            end = cluster.list_offsets({self._topic: LATEST}, isolation=READ_COMMITTED)[self._topic]
            reading = FetchOptions(columns=("key", "value"), isolation=READ_COMMITTED)
            for batch in read_range(cluster, OffsetRange(*self._topic, begin, end), reading):
                pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
                for key, value in pairs:
                    self._take(key, value)
            self._position = max(begin, end)
            copies = [TopicPartition(self._prefix + each.topic, each.partition) for each in self._syncs]
            return cluster.list_offsets(dict.fromkeys(copies, LATEST))

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        with suppress(ValueError, KeyError, UnicodeDecodeError):
            group, topic, partition = place_of(key.decode())
            if group == self._group:
                place = self._syncs.setdefault(TopicPartition(topic, partition), {})
                found = Sync.from_json(value.decode())
                place.pop(key.decode(), None)  # so that syncs are in the order of writing
                place[key.decode()] = found

    async def _translate(self, ends: Mapping[TopicPartition, int]) -> None:
        async with (
            asyncio.timeout(SYNC_TIMEOUT_S),
            opened_cluster(self._source) as source,
            opened_cluster(self._sink) as sink,
        ):
            there, here = Groups(source), Groups(sink)
            for listing in await there.list():
                name = listing.group_id
                if self._wanted.fullmatch(name) is None or name in self._own_groups:
                    continue
                found = self._translated(await there.offsets(name), ends)
                if not found or not await _is_idle(here, name):
                    continue
                known = await here.offsets(name)
                moved = {place: offset for place, offset in found.items() if offset > known.get(place, -1)}
                if moved:
                    await here.commit(name, moved)

    def _translated(
        self, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for place, offset in committed.items():
            here = translated(offset, self._syncs.get(place, {}).values())
            copy = TopicPartition(self._prefix + place.topic, place.partition)
            if here is not None and here <= ends.get(copy, -1):
                found[copy] = here
        return found


async def _is_idle(groups: Groups, name: str) -> bool:
    try:
        return (await groups.describe(name)).state in _IDLE
    except GroupIdNotFound:
        return True
