"""Group member of Barnabas' own client: its heartbeats keep it in the group and tell it when to rejoin."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from barnabas.client import group_member
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.group_member import GroupMember
from barnabas.core.clock import SystemClock
from barnabas.core.reporting.metrics import Counter
from tests.support.in_process import InProcessBroker, in_process_broker


def client_of(broker: InProcessBroker) -> ClusterClient:
    return ClusterClient([broker.address], clock=SystemClock(), randomness=random.Random(1))


def heartbeats_of(broker: InProcessBroker) -> int:
    for family in broker.broker.metrics.families():
        if family.name == "kafka_requests_total":
            for labels, counter in family.members.items():
                if (
                    "Heartbeat" in str(labels)
                    and "Consumer" not in str(labels)
                    and "Share" not in str(labels)
                ):
                    assert isinstance(counter, Counter)
                    return int(counter.value)
    return 0


async def test_heartbeats_keep_a_member_and_call_it_back_to_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_member, "HEARTBEAT_INTERVAL_MS", 20)
    async with in_process_broker(tmp_path, group_initial_rebalance_delay_ms=0) as broker:
        assert await broker.create_topic("topic", 2) == 0
        async with (
            client_of(broker) as one,
            client_of(broker) as other,
            GroupMember(one, "group", "topic") as first,
            GroupMember(other, "group", "topic") as second,
        ):
            assert await first.join() == [0, 1]
            while heartbeats_of(broker) < 3:  # noqa: ASYNC110 - the counter has no event to await
                await asyncio.sleep(0.01)
            assert not first.must_rejoin.is_set()
            joining = asyncio.create_task(second.join())
            await asyncio.wait_for(first.must_rejoin.wait(), 30)
            assert sorted([*await first.join(), *await joining]) == [0, 1]
