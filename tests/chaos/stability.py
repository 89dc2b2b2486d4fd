"""Last stable offsets after the faults: no transaction stays undecided.

Every transaction ends: by its producer, by its timeout, or by the next producer of its transactional id. So
when the clients have stopped, the brokers run and the longest timeout has passed, the last stable offset of
every partition is its high watermark. Where it is not, the leader names the producers that hold it back, and
the coordinators describe their transactions. A transaction that no coordinator knows hangs for good.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from confluent_kafka.admin import AdminClient

from barnabas.client.aio.channel import Channel
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import LeaderNotAvailable, error_for
from barnabas.protocol.messages import describe_producers, list_transactions
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.chaos.history import OpenTransaction, Undecided
from tests.chaos.insisting import insist
from tests.chaos.workload import TRANSACTION_TIMEOUT_MS
from tests.support.secured_cluster import Reach

LATEST = -1
UNCOMMITTED, COMMITTED = 0, 1
LAST_VERSION_BY_NAME = 6
COORDINATOR_INTERVAL_S = 10.0
DECIDED_TIMEOUT_S = TRANSACTION_TIMEOUT_MS / 1_000 + COORDINATOR_INTERVAL_S + 30.0
PAUSE_S = 0.5


def undecided(reach: Reach, topics: Iterable[str]) -> list[Undecided]:
    """Transactions that are still undecided when everything has had the time to end."""
    return insist(lambda: asyncio.run(settle(lambda: _look(reach, list(topics)), DECIDED_TIMEOUT_S)))


async def settle(look: Callable[[], Awaitable[list[Undecided]]], timeout_s: float) -> list[Undecided]:
    deadline = time.monotonic() + timeout_s
    while True:
        found = await look()
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(PAUSE_S)


async def _look(reach: Reach, topics: list[str]) -> list[Undecided]:
    metadata = AdminClient({**reach.properties, "log_level": 0}).list_topics(timeout=20)
    addresses = {each.id: Endpoint(str(each.host), int(each.port or 0)) for each in metadata.brokers.values()}
    channels = {
        broker: await Channel.connect(address, security=reach.security)
        for broker, address in addresses.items()
    }
    try:
        found: list[Undecided] = []
        for topic in topics:
            for number, partition in metadata.topics[topic].partitions.items():
                if partition.leader not in channels:
                    raise LeaderNotAvailable(f"nobody leads {topic}-{number}")
                each = await _look_at(channels[partition.leader], topic, number)
                if each is not None:
                    found.append(each)
        states = await _states(channels.values()) if found else {}
        for each in found:
            for open_transaction in each.open:
                open_transaction.coordinator_state = states.get(open_transaction.producer_id, "")
        return found
    finally:
        for channel in channels.values():
            channel.close()


async def _look_at(leader: Channel, topic: str, partition: int) -> Undecided | None:
    # The end that everyone can read is asked for first: it only grows while the other one catches up.
    high_watermark = await _end(leader, topic, partition, UNCOMMITTED)
    last_stable_offset = await _end(leader, topic, partition, COMMITTED)
    if last_stable_offset >= high_watermark:
        return None
    request = describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=topic, partition_indexes=[partition])]
    )
    answer = await leader.send(request, describe_producers.DescribeProducersResponse)
    return Undecided(
        topic,
        partition,
        last_stable_offset,
        high_watermark,
        [
            OpenTransaction(each.producer_id, each.producer_epoch, each.current_txn_start_offset)
            for each in answer.topics[0].partitions[0].active_producers
            if each.current_txn_start_offset >= 0
        ],
    )


async def _end(leader: Channel, topic: str, partition: int, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    answer = await leader.send(request, ListOffsetsResponse, version_max=LAST_VERSION_BY_NAME)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise error_for(found.error_code, f"the end of {topic}-{partition}")
    return found.offset


async def _states(brokers: Iterable[Channel]) -> dict[int, str]:
    """State of each producer id at the coordinators."""
    found: dict[int, str] = {}
    for broker in brokers:
        answer = await broker.send(
            list_transactions.ListTransactionsRequest(), list_transactions.ListTransactionsResponse
        )
        found |= {each.producer_id: each.transaction_state for each in answer.transaction_states}
    return found
