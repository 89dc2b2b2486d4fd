"""Large requests, one after the other, to one broker: the largest of every API, and some that were faults.

Judges look after each of them: another client's wait and the memory by the bounds of a single request, the
size of the response, and the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import assemble_batch
from tests.fuzz.connection import Closed
from tests.fuzz.judges.latency import P99_S_MAX
from tests.fuzz.judges.memory import GROWTH_BYTES_MAX
from tests.fuzz.largest import frames
from tests.fuzz.life import Life
from tests.fuzz.steps import SASL
from tests.support import hostile

ELEMENTS_MAX = 100_000
ANSWER_S_MAX = 120.0
NOT_ASKED = SASL | {ApiKey.CONTROLLED_SHUTDOWN}
RECORD = bytes((0x0C, 0, 0, 0, 1, 1, 0))
"""Without key, value and headers."""


class Large(NamedTuple):
    name: str
    user: str
    frames: list[bytes]
    """Candidates from the largest to the smallest, or requests one after the other."""
    is_sequence: bool = False


def all_large() -> Iterator[Large]:
    yield from known_faults()
    for api in APIS.for_clients():
        if api.key not in NOT_ASKED:
            for name, candidates in frames(api.key, api.versions[-1], ELEMENTS_MAX):
                for user in ("mallory", "alice"):
                    yield Large(f"{name}, {user}", user, candidates)


def known_faults() -> Iterator[Large]:
    partitions = [FetchPartition(partition=index) for index in range(99_000)]
    session = FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic="hidden-t", partitions=partitions)]
    )
    yield Large("ten fetch sessions", "mallory", [hostile.frame_of(ApiKey.FETCH, 11, session)] * 10, True)
    resource = DescribeConfigsResource(resource_type=2, resource_name="fuzz-a", configuration_keys=None)
    again = DescribeConfigsRequest(
        resources=[resource] * 20_000, include_synonyms=True, include_documentation=True
    )
    yield Large("a topic named again", "alice", [hostile.frame_of(ApiKey.DESCRIBE_CONFIGS, 4, again)], True)
    count = 2_000_000
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    payload = squeezed.compress(RECORD * count) + squeezed.flush()
    batch = assemble_batch(
        payload, base_offset=0, leader_epoch=-1, attributes=1, last_offset_delta=count - 1,
        base_timestamp=1_000,
        max_timestamp=1_000_000, producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=count,
    )  # fmt: skip
    data = PartitionProduceData(index=0, records=bytes(batch))
    produce = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="fuzz-b", partition_data=[data])]
    )
    search = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="fuzz-b", partitions=[ListOffsetsPartition(partition_index=0, timestamp=999_999)]
            )
        ],
    )
    planted = [hostile.frame_of(ApiKey.PRODUCE, 7, produce), hostile.frame_of(ApiKey.LIST_OFFSETS, 5, search)]
    yield Large("a batch of two million records", "alice", planted, True)


def play(life: Life) -> Iterator[tuple[str, list[str]]]:
    """Each large request by name, with the complaints about it."""
    for large in all_large():
        yield large.name, [f"{each} ({large.name})" for each in _judged(life, large)]


def _judged(life: Life, large: Large) -> Iterator[str]:
    world, prober = life.world, life.prober
    prober.taken()
    before_bytes = world.resident_bytes()
    for frame in large.frames:
        try:
            with world.connect(large.user, ANSWER_S_MAX) as connection:
                connection.send(frame)
                connection.one_answer()
        except Closed:
            continue
        if not large.is_sequence:
            break
    life.requests += 1
    if not prober.is_served(ANSWER_S_MAX):
        yield "stuck: another client has no answer"
    worst_s = max((wait.busy_s for wait in prober.taken()), default=0.0)
    if worst_s > P99_S_MAX:
        yield f"slow: another client waits {worst_s * 1_000:.0f} ms"
    grown_bytes = world.resident_bytes() - before_bytes
    if grown_bytes > GROWTH_BYTES_MAX:
        yield f"memory: {grown_bytes >> 20} MB more"
    yield from life.log.complaints()
