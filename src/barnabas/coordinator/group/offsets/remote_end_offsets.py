"""End offsets of partitions that other brokers lead, asked for at an interval.

The end offsets of the past show when a partition grew past an offset, to the precision of the interval. For
an offset that the partition had passed before the first answer, the time of the first answer is returned. The
true time is earlier.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.runtime.peers import Peers, Start
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.offset_numbers import LATEST

logger = logging.getLogger(__name__)

SAMPLES_MAX = 64
"""Past end offsets of one partition. Where there are more, every second of the older ones is dropped."""
CONSUMER_ID = -1


class RemoteEndOffsets:
    def __init__(self, metadata: MetadataCache, peers: Peers, clock: Clock, start: Start) -> None:
        self._metadata = metadata
        self._peers = peers
        self._clock = clock
        self._start = start
        self._samples: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Time and end offset of each answer, oldest first."""
        self._asked: set[int] = set()
        """Leaders whose answer is awaited."""

    def end_offset(self, topic_partition: TopicPartition) -> int | None:
        samples = self._samples.get(topic_partition)
        return samples[-1][1] if samples else None

    def passed_ms(self, topic_partition: TopicPartition, offset: int) -> int | None:
        """Time of the first answer whose end offset is beyond `offset`."""
        samples = self._samples.get(topic_partition, ())
        return next((time_ms for time_ms, end_offset in samples if end_offset > offset), None)

    def refresh(self, wanted: Iterable[TopicPartition]) -> None:
        """Ask the leaders of these partitions, and forget all others."""
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        partitions = set(wanted)
        for gone in self._samples.keys() - partitions:
            del self._samples[gone]
        for each in sorted(partitions):
            known = self._metadata.partition(*each)
            if known is not None and known.leader != NO_LEADER:
                by_leader[known.leader].append(each)
        for leader, led in by_leader.items():
            if leader not in self._asked:
                self._asked.add(leader)
                self._start(self._ask(leader, led))

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> None:
        by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
        topics = [ListOffsetsTopic(name=name, partitions=led) for name, led in by_topic.items()]
        request = ListOffsetsRequest(replica_id=CONSUMER_ID, topics=topics)
        try:
            answer = await self._peers.send(leader, request, ListOffsetsResponse)
        except (KafkaError, OSError) as error:
            logger.debug("end offsets of broker %d for the lag of groups: %s", leader, error)
            return
        except Exception:
            # The next interval asks again; the lag of its partitions stays as it was.
            logger.exception("end offsets of broker %d for the lag of groups cannot be read", leader)
            return
        finally:
            self._asked.discard(leader)
        now_ms = self._clock.now_ms()
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                if not row.error_code:
                    self._add(TopicPartition(topic_answer.name, row.partition_index), now_ms, row.offset)

    def _add(self, topic_partition: TopicPartition, now_ms: int, end_offset: int) -> None:
        samples = self._samples.setdefault(topic_partition, [])
        if samples and samples[-1][1] == end_offset:
            return
        samples.append((now_ms, end_offset))
        if len(samples) > SAMPLES_MAX:
            # Half the precision for the older half; the oldest one stays, because it bounds the age.
            del samples[1 : SAMPLES_MAX // 2 : 2]
