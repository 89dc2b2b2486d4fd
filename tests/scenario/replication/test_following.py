"""Followers in trouble: lost offsets, damaged responses, slow disks, quotas."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import KafkaStorageError, NotLeaderOrFollower, RequestTimedOut, StaleControllerEpoch
from barnabas.core.ids import ZERO_UUID, BrokerId, TopicPartition
from barnabas.core.reporting.metrics import Gauge, render_prometheus
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.replication.leader.replica_selector import RACK_AWARE_SELECTOR
from barnabas.replication.partition.throttle import UNTHROTTLED
from barnabas.storage.files.names import LOG
from barnabas.storage.log.log import Log
from tests.scenario.replication import support
from tests.scenario.replication.support import ONE, TOPIC, ZERO, Member, Trio, eventually, trio
from tests.support.background import ManualBackground
from tests.support.settings import log_config
from tests.support.wire import content


async def delete_before(leader: Member, offset: int) -> int:
    ask = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[ask])], timeout_ms=30_000
    )
    answer = await leader.ask(request, DeleteRecordsResponse)
    (part,) = answer.topics[0].partitions
    assert part.error_code == 0
    return part.low_watermark


async def test_deleted_records_go_everywhere(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for number in range(5):
            await cluster[1].produce(b"%d" % number)
        assert await delete_before(cluster[1], 3) == 3
        assert [cluster[each].partition().log.log_start_offset for each in (1, 2, 3)] == [3, 3, 3]


async def test_a_deletion_times_out_while_a_live_follower_does_not_fetch(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"record")
        await cluster[2].kill()
        ask = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[ask])], timeout_ms=50
        )
        answer = await cluster[1].ask(request, DeleteRecordsResponse)
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.low_watermark) == (RequestTimedOut.code, -1)


async def test_a_follower_that_was_away_too_long_starts_over(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"old")
        await cluster[2].kill()
        await cluster.lead(1, epoch=1, isr=[1])
        for number in range(5):
            await cluster[1].produce(b"%d" % number)
        await delete_before(cluster[1], 4)
        await cluster[2].restart()
        await cluster.lead(1, epoch=2, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        log = cluster[2].partition().log
        assert (log.log_start_offset, log.log_end_offset) == (4, 6)


async def test_a_log_that_starts_inside_a_batch_is_copied_with_the_whole_batch(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, isr=[1], replicas=[1], tell=[1])
        await cluster[1].produce(b"a", b"b", b"c", b"d")
        await cluster[1].produce(b"e")
        await delete_before(cluster[1], 2)
        await cluster.lead(1, epoch=1, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        log = cluster[2].partition().log
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)
        assert cluster[2].bytes_of() == cluster[1].bytes_of()


async def test_the_high_watermark_of_a_follower_is_the_smaller_of_its_own_end_and_the_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    advance = Log.advance_high_watermark

    def look_and_advance(log: Log, offset: int) -> None:
        if log is cluster[2].partition().log:
            seen.append((log.log_end_offset, offset))
        advance(log, offset)

    async with trio(tmp_path, 2) as cluster:
        cluster[2].settings.replica_fetch_max_bytes = 1
        await cluster.lead(1, epoch=0, isr=[1], tell=[1])
        for number in range(10):
            await cluster[1].produce(b"%d" % number)
        monkeypatch.setattr(Log, "advance_high_watermark", look_and_advance)
        await cluster.lead(1, epoch=1, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert len({end for end, _ in seen}) > 3, "it came in steps"
        assert all(high_watermark == min(end, 10) for end, high_watermark in seen)
        waiting = asyncio.create_task(cluster[1].produce(b"more"))
        await eventually(lambda: (11, 10) in seen)
        assert (await waiting).error_code == 0
        await eventually(lambda: seen[-1] == (11, 11))


async def test_a_damaged_partition_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, isr=[1], keys=[ZERO, ONE], tell=[1])
        await cluster[1].produce(b"damaged", key=ZERO)
        segment = tmp_path / "broker-1" / str(ZERO) / f"{0:020d}{LOG}"
        data = bytearray(segment.read_bytes())
        data[-1] ^= 0xFF
        segment.write_bytes(data)
        await cluster.lead(1, epoch=1, isr=[1], keys=[ZERO, ONE])
        for _ in range(5):
            await cluster[1].produce(b"value", key=ONE)
        await eventually(lambda: cluster[2].end(ONE) == 5)
        assert cluster[2].end(ZERO) == 0
        assert cluster[1].partition(ZERO).leadership.isr == {1}


async def test_a_follower_claims_only_what_its_disk_has(tmp_path: Path) -> None:
    """With flush.messages, a fetch offset promises that everything below it is on disk."""
    async with trio(tmp_path, 2, flush_messages=1) as cluster:
        await cluster[2].stop()
        disk = cluster[2].background = ManualBackground()
        await cluster[2].start()
        await cluster.lead(1, epoch=0)
        waiting = asyncio.create_task(cluster[1].produce(b"value"))
        await eventually(lambda: cluster[2].end() == 1)
        fetched = cluster[1].partition().followers[BrokerId(2)]
        assert fetched.end_offset < 1
        assert not waiting.done()
        while not waiting.done():
            if disk.waiting:
                disk.run_one()
            await asyncio.sleep(0)
        assert (await waiting).error_code == 0
        cluster[2].background = ManualBackground()


async def test_a_lost_disk_ends_the_following(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        (directory,) = cluster[2].logs.directories
        directory.fail(OSError(5, "Input/output error"))
        assert len(cluster[2].replicas.fetchers._by_partition) == 0
        cluster.cut_link(2, 1)
        order = cluster.order([ZERO], [1, 2], 1)
        order.topic_states[0].partition_states[0].leader_epoch = 1
        answer = await cluster[2].ask(order, LeaderAndIsrResponse)
        assert answer.topics[0].partition_errors[0].error_code == KafkaStorageError.code


async def _join_late(cluster: Trio) -> None:
    await cluster.lead(1, epoch=0, isr=[1], tell=[1])
    for _ in range(20):
        await cluster[1].produce(b"x" * 10_000)


async def test_a_leader_holds_catching_up_to_its_quota(tmp_path: Path) -> None:
    async with trio(tmp_path, 2, leader_replication_throttled_replicas=("*",)) as cluster:
        for member in cluster.members.values():
            member.settings.replica_fetch_max_bytes = 10_000
        cluster[1].settings.leader_replication_throttled_rate = 30_000
        await _join_late(cluster)
        await cluster.lead(1, epoch=1, isr=[1])
        throttle = cluster[1].replicas.reader.throttle
        await eventually(lambda: throttle.is_exceeded)
        assert 0 < cluster[2].end() < 20
        cluster[1].settings.leader_replication_throttled_rate = UNTHROTTLED
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))


async def test_a_follower_holds_itself_to_its_quota(tmp_path: Path) -> None:
    async with trio(tmp_path, 2, follower_replication_throttled_replicas=("0:2",)) as cluster:
        for member in cluster.members.values():
            member.settings.replica_fetch_max_bytes = 10_000
        cluster[2].settings.follower_replication_throttled_rate = 30_000
        await _join_late(cluster)
        await cluster.lead(1, epoch=1, isr=[1])
        throttle = cluster[2].replicas.follower_throttle
        await eventually(lambda: throttle.is_exceeded)
        assert 0 < cluster[2].end() < 20
        cluster[2].settings.follower_replication_throttled_rate = UNTHROTTLED
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))


async def test_a_consumer_is_sent_to_the_replica_of_its_rack(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        for number, rack in ((1, "a"), (2, "b"), (3, "c")):
            cluster[number].rack = rack
            cluster[number].settings.replica_selector_class = RACK_AWARE_SELECTOR
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        at_home = await cluster[1].fetch(0, rack_id="a")
        assert (at_home.preferred_read_replica, len(at_home.records or b"") > 0) == (-1, True)
        sent_on = await cluster[1].fetch(0, rack_id="b")
        assert (sent_on.preferred_read_replica, sent_on.records) == (2, b"")
        assert (await cluster[1].fetch(0, rack_id="nowhere")).preferred_read_replica == -1
        await eventually(lambda: cluster[2].partition().log.high_watermark == 1)
        there = await cluster[2].fetch(0, rack_id="b")
        assert (there.error_code, there.preferred_read_replica) == (0, -1)
        assert there.records == (await cluster[1].fetch(0)).records


async def test_a_consumer_waits_at_a_follower(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"one")
        await eventually(lambda: cluster[2].partition().log.high_watermark == 1)
        waiting = asyncio.create_task(cluster[2].fetch(1, max_wait_ms=30_000))
        await cluster[1].produce(b"two")
        got = await waiting
        assert b"two" in content(got.records or b"")
        assert (await cluster[2].fetch(0, version=10)).error_code == NotLeaderOrFollower.code


async def test_nothing_is_acknowledged_when_the_lease_has_run_out(tmp_path: Path) -> None:
    lease = [float("inf")]
    async with trio(tmp_path, 2, lease_expires_ms=lambda: lease[0]) as cluster:
        await cluster.lead(1, epoch=0)
        assert (await cluster[1].produce(b"value")).error_code == 0
        cluster.cut_link(2, 1)
        waiting = asyncio.create_task(cluster[1].produce(b"waits"))
        await eventually(lambda: cluster[1].end() == 2)
        lease[0] = float("-inf")
        first, cluster[1].channel = cluster[1].channel, await Channel.connect(cluster[1].address)
        assert (await cluster[1].produce(b"late")).error_code == NotLeaderOrFollower.code
        assert (await cluster[1].produce(b"late", acks=1)).error_code == NotLeaderOrFollower.code
        cluster.mend_link(2, 1)
        assert (await waiting).error_code == NotLeaderOrFollower.code
        assert cluster[1].end() == 2
        assert len((await cluster[1].fetch(0)).records or b"") > 0, "reading goes on"
        first.close()


async def test_a_leader_of_a_previous_session_promises_nothing_until_it_is_confirmed(tmp_path: Path) -> None:
    """Its new session is alive, and the controller may have elected another before."""
    async with trio(tmp_path, 2, lease_expires_ms=lambda: float("inf")) as cluster:
        await cluster.lead(1, epoch=0)
        leader = cluster[1]
        assert (await leader.produce(b"value")).error_code == 0
        leader.epoch += 1
        for acks in (1, -1):
            assert (await leader.produce(b"late", acks=acks)).error_code == NotLeaderOrFollower.code
        assert await listed(leader, LATEST) == NotLeaderOrFollower.code
        assert await listed(leader, MAX_TIMESTAMP) == NotLeaderOrFollower.code
        assert await listed(leader, EARLIEST) == 0, "what was the start is not before it"
        assert len((await leader.fetch(0)).records or b"") > 0, "reading goes on"
        answer = await leader.ask(cluster.order([ZERO], [1, 2], leader.epoch), LeaderAndIsrResponse)
        assert answer.topics[0].partition_errors[0].error_code == StaleControllerEpoch.code, "no news"
        assert await listed(leader, LATEST) == 0
        assert (await leader.produce(b"confirmed")).error_code == 0
        assert leader.end() == 2


async def listed(member: Member, timestamp: int) -> int:
    """The error of asking for an offset."""
    ask = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[ask])])
    answer = await member.ask(request, ListOffsetsResponse)
    return answer.topics[0].partitions[0].error_code


async def test_more_fetchers_share_the_partitions(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        cluster[2].settings.num_replica_fetchers = 3
        keys = [ZERO._replace(partition=number) for number in range(6)]
        await cluster.lead(1, epoch=0, keys=keys)
        for key in keys:
            assert (await cluster[1].produce(b"value", key=key)).error_code == 0
        assert len(cluster.links[2, 1]) == 3


async def test_a_follower_that_asks_a_follower_is_sent_away(tmp_path: Path) -> None:
    """Not even by an offset that is out of range there: it would cut its log by it."""
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        ask = FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=1_000, current_leader_epoch=0)
        request = FetchRequest(
            replica_id=3, session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=[ask])]
        )
        answer = await cluster[2].ask(request, FetchResponse, 12)
        assert answer.responses[0].partitions[0].error_code == NotLeaderOrFollower.code


async def test_segments_may_be_smaller_than_the_leaders(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, isr=[1], tell=[1])
        for number in range(40):
            await cluster[1].produce(b"%d" % number * 500)
        cluster[2].config = log_config(segment_bytes=5_000)
        await cluster.lead(1, epoch=1, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert cluster[2].bytes_of() == cluster[1].bytes_of()
        assert len(cluster[2].partition().log.segments) > 3


async def test_a_segment_may_be_smaller_than_one_batch_of_the_leader(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, isr=[1], tell=[1])
        for number in range(10):
            await cluster[1].produce(b"%d" % number * 500)
            await cluster[1].produce(b"%d" % number * 8_000)
        cluster[2].config = log_config(segment_bytes=5_000)
        await cluster.lead(1, epoch=1, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert cluster[2].bytes_of() == cluster[1].bytes_of()


async def test_the_high_watermark_of_a_follower_survives_a_restart(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        await eventually(lambda: cluster[2].partition().log.high_watermark == 1)
        await cluster[2].stop()
        await cluster[1].stop()
        await cluster[2].restart()
        await cluster.lead(1, epoch=1)
        assert cluster[2].partition().log.high_watermark == 1
        assert len((await cluster[2].fetch(0)).records or b"") > 0


async def test_figures_show_what_is_not_in_sync(tmp_path: Path) -> None:
    async with trio(tmp_path, min_insync_replicas=2) as cluster:

        def figure(broker_id: int, name: str) -> float:
            (family,) = (each for each in cluster[broker_id].metrics.families() if each.name == name)
            (gauge,) = family.members.values()
            assert isinstance(gauge, Gauge)
            return gauge.read()

        await cluster.lead(1, epoch=0, isr=[1], tell=[1])
        assert figure(1, "kafka_leaders") == figure(1, "kafka_partitions") == 1
        assert figure(1, "kafka_under_replicated_partitions") == 1
        assert figure(1, "kafka_under_min_isr_partitions") == 1
        await cluster.lead(1, epoch=1, isr=[1, 2, 3])
        await cluster[1].produce(b"value")
        assert figure(1, "kafka_under_replicated_partitions") == 0
        assert figure(1, "kafka_under_min_isr_partitions") == 0
        assert figure(1, "kafka_at_min_isr_partitions") == 0
        assert figure(2, "kafka_leaders") == 0
        assert figure(2, "kafka_replica_fetcher_max_lag") == 0
        (directory,) = cluster[2].logs.directories
        directory.fail(OSError(5, "Input/output error"))
        assert figure(2, "kafka_offline_replicas") == 1
        await cluster.lead(1, epoch=2, isr=[1, 2], tell=[1])
        assert figure(1, "kafka_at_min_isr_partitions") == 1
        assert figure(1, "kafka_reassigning_partitions") == 0
        cluster[1].partition().leadership.adding_replicas = frozenset({BrokerId(3)})
        assert figure(1, "kafka_reassigning_partitions") == 1


async def test_the_bytes_of_replication_are_those_of_the_logs(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for _ in range(5):
            await cluster[1].produce(b"x" * 100)
        size_bytes = cluster[1].partition().log.segments.size_bytes
        counters = [cluster[broker_id].partition().metrics for broker_id in (1, 2, 3)]
        assert [each.replication_bytes_in.value for each in counters] == [0, size_bytes, size_bytes]
        assert counters[0].replication_bytes_out.value == 2 * size_bytes
        assert counters[0].bytes_out.value == 0


async def test_the_lag_of_a_follower_is_what_the_leader_has_committed_beyond_its_end(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        fetchers = cluster[2].replicas.fetchers
        assert list(fetchers.lags()) == [(1, ZERO, 0)]
        followed = fetchers._by_partition[ZERO].fetcher._followed[ZERO]
        followed.high_watermark = followed.partition.log.log_end_offset + 41
        assert list(fetchers.lags()) == [(1, ZERO, 41)]
        assert fetchers.max_lag == 41
        page = render_prometheus(cluster[2].metrics)
        labels = f'partition="0",source_broker="1",topic="{TOPIC}"'
        assert f"kafka_replica_fetcher_consumer_lag{{{labels}}} 41\n" in page
        assert "kafka_replica_fetcher_max_lag 41\n" in page


async def test_topics_without_ids_may_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = TopicPartition("old", 0)
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        assert (await cluster[1].produce(b"by id")).error_code == 0
        with monkeypatch.context() as as_of_old:
            as_of_old.setattr(support, "TOPIC_ID", ZERO_UUID)
            await cluster.lead(1, epoch=0, keys=[old])
            assert (await cluster[1].produce(b"by name", key=old, timeout_ms=10_000)).error_code == 0
            await cluster.lead(2, epoch=1, keys=[old])
        assert (await cluster[1].produce(b"by id again", timeout_ms=10_000)).error_code == 0
