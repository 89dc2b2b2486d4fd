"""Offsets whose first commit is pending in a transaction: a reader that names the partition waits."""

from __future__ import annotations

import asyncio
import random

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core import transaction_steps
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.testing.broker import run_broker

SOURCE = TopicPartition("in", 0)
NOT_LONG_S = 1.0
"""Many retries of the client fit into it."""


def test_a_first_commit_that_is_pending_holds_back_the_reader_that_names_its_partition() -> None:
    with run_broker() as broker:
        asyncio.run(read_beside_an_open_transaction(Endpoint.parse(broker.bootstrap)))


async def read_beside_an_open_transaction(bootstrap: Endpoint) -> None:
    async with ClusterClient([bootstrap], clock=SystemClock(), randomness=random.Random(1)) as cluster:
        state = cluster.state
        await TopicAdmin(cluster).create_topic(SOURCE.topic, partitions=1, configs={})
        txn = await cluster.run(transaction_steps.begin(state, "copier", 60_000))
        await cluster.run(transaction_steps.commit_offsets(state, txn, "g", {SOURCE: 7}, ""))

        assert await cluster.run(transaction_steps.committed_metadata(state, "g")) == {}, "as in Apache Kafka"
        reading = asyncio.ensure_future(
            cluster.run(transaction_steps.committed_metadata(state, "g", [SOURCE]))
        )
        done, _ = await asyncio.wait([reading], timeout=NOT_LONG_S)
        assert not done

        await cluster.run(transaction_steps.end(state, txn, commit=True))
        assert (await reading)[SOURCE][0] == 7
