"""Three brokers copy each other's logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from barnabas.cluster.stores.isr_store import Joining
from barnabas.core.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeaderOrFollower
from barnabas.core.ids import BrokerId
from barnabas.protocol.messages.fetch import FetchRequest
from tests.scenario.replication.support import ONE, ZERO, eventually, trio


async def test_followers_have_the_leaders_log_byte_for_byte(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for number in range(20):
            answer = await cluster[1].produce(b"value %d" % number, b"x" * 1_000)
            assert answer.error_code == 0
            assert answer.base_offset == 2 * number
        assert [cluster[each].end() for each in (1, 2, 3)] == [40, 40, 40]
        logs = {cluster[each].bytes_of() for each in (1, 2, 3)}
        assert len(logs) == 1
        assert len(logs.pop()) > 20_000
        await eventually(lambda: all(cluster[each].partition().log.high_watermark == 40 for each in (2, 3)))
        assert cluster[2].partition().log.leader_epochs.entries == [(0, 0)]


async def test_acks_all_waits_for_every_in_sync_replica(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"warm")
        cluster.cut_link(3, 1)
        waiting = asyncio.create_task(cluster[1].produce(b"value"))
        await eventually(lambda: cluster[2].end() == 2)
        assert not waiting.done(), "broker 3 does not have it"
        assert cluster[1].partition().log.high_watermark == 1
        cluster.mend_link(3, 1)
        assert (await waiting).error_code == 0
        assert cluster[3].end() == 2


async def test_acks_one_waits_for_no_follower(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        cluster.cut_link(2, 1)
        cluster.cut_link(3, 1)
        assert (await cluster[1].produce(b"value", acks=1)).error_code == 0
        assert (await cluster[1].fetch(0)).records == b"", "what is not committed is not shown"
        cluster.mend_link(2, 1)
        cluster.mend_link(3, 1)
        await eventually(lambda: cluster[1].partition().log.high_watermark == 1)
        assert len((await cluster[1].fetch(0)).records or b"") > 0


async def test_a_lagging_follower_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"warm")
        leader = cluster[1].partition()
        cluster.cut_link(3, 1)
        waiting = asyncio.create_task(cluster[1].produce(b"value"))
        await eventually(lambda: cluster[1].end() == 2 and leader.followers[BrokerId(2)].end_offset == 2)
        cluster[1].settings.replica_lag_time_max_ms = 0
        leader.followers[BrokerId(3)].last_caught_up_ms = float("-inf")
        cluster.store.gate = asyncio.Event()
        cluster[1].replicas.isr.shrink_all([leader])
        cluster[1].settings.replica_lag_time_max_ms = 30_000
        assert leader.leadership.isr == {1, 2, 3}, "the ISR is what the store says"
        assert not waiting.done(), "a smaller ISR does not count before it is written"
        cluster.store.gate.set()
        assert (await waiting).error_code == 0
        assert leader.leadership.isr == {1, 2}
        assert cluster.store.states[ZERO].isr == (1, 2)
        cluster.mend_link(3, 1)
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2, 3))
        await eventually(lambda: leader.leadership.isr == {1, 2, 3})
        assert cluster[3].end() == 2


async def test_too_few_in_sync_replicas_refuse_acks_all(tmp_path: Path) -> None:
    async with trio(tmp_path, min_insync_replicas=2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"warm")
        cluster.cut_link(2, 1)
        cluster.cut_link(3, 1)
        waiting = asyncio.create_task(cluster[1].produce(b"value"))
        await eventually(lambda: cluster[1].end() == 2)
        leader = cluster[1].partition()
        cluster[1].settings.replica_lag_time_max_ms = -1
        for follower in leader.followers.values():
            follower.last_caught_up_ms = float("-inf")
        cluster[1].replicas.isr.shrink_all([leader])
        assert (await waiting).error_code == NotEnoughReplicasAfterAppend.code
        assert leader.leadership.isr == {1}
        assert (await cluster[1].produce(b"more")).error_code == NotEnoughReplicas.code
        assert cluster[1].end() == 2, "a refused batch is not appended"
        assert (await cluster[1].produce(b"one", acks=1)).error_code == 0
        assert leader.log.high_watermark == 1


async def test_a_follower_refuses_producers(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        assert (await cluster[2].produce(b"value")).error_code == NotLeaderOrFollower.code


async def test_each_broker_leads_and_follows(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0, keys=[ZERO])
        await cluster.lead(2, epoch=0, keys=[ONE])
        for _ in range(5):
            await cluster[1].produce(b"zero", key=ZERO)
            await cluster[2].produce(b"one", key=ONE)
        for key in (ZERO, ONE):
            assert len({cluster[each].bytes_of(key) for each in (1, 2, 3)}) == 1


async def test_an_idle_follower_sends_an_empty_fetch(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        keys = [ZERO._replace(partition=number) for number in range(50)]
        await cluster.lead(1, epoch=0, keys=keys)
        await asyncio.gather(*(cluster[1].produce(b"value", key=key) for key in keys))
        asked: list[int] = []
        link = cluster.links[2, 1][-1]
        post = link.post

        def count(request: FetchRequest, *arguments: Any, **named: Any) -> None:
            asked.append(sum(len(topic.partitions) for topic in request.topics))
            post(request, *arguments, **named)

        link.post = count  # type: ignore[method-assign, assignment]
        await eventually(lambda: len(asked) >= 6)
        assert asked[-3:] == [0, 0, 0]


async def test_a_follower_joins_under_the_epoch_that_it_fetches_with(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        cluster[2].epoch = 7
        await cluster.lead(1, epoch=0, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert cluster.store.joined == [Joining(2, 7)]
