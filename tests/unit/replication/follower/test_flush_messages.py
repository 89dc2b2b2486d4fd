"""A follower with `flush.messages`: it claims only what it has synced, and it never stops fetching."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages import fetch
from barnabas.replication.follower.replica_fetcher import DISK_POLL_MS
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from tests.support.background import ManualBackground
from tests.unit.replication.follower.test_replica_fetcher import BOTH, Link, Network, answer
from tests.unit.replication.support import ONE, OTHER, TOPIC_ID, ZERO, Replicas
from tests.unit.storage.support import batch


class Follower:
    """A replica manager that follows `OTHER`, whose disk syncs when the test says so."""

    def __init__(self, root: Path) -> None:
        self.network = Network()
        self.disk = ManualBackground()
        self.replicas = Replicas(
            str(root), connect=self.network.connect, background=self.disk, flush_messages=1
        )
        self.link = Link()

    def follow(self, leader_epoch: int, key: TopicPartition = ZERO) -> Partition:
        partition = self.replicas.local.get_or_create(key, TOPIC_ID)
        partition.become_follower(LeaderAndIsr(OTHER, leader_epoch, BOTH, BOTH))
        self.replicas.fetchers.follow(partition)
        return partition

    def connect(self) -> None:
        self.replicas.scheduler.run_due()
        self.network.connected(self.link)

    def receive(self, base_offset: int, *counts: int, partition: int = 0) -> None:
        records = bytearray()
        for count in counts:
            records += batch([b"x"] * count, base_offset=base_offset, leader_epoch=0)
            base_offset += count
        self.answer(
            fetch.PartitionData(partition_index=partition, high_watermark=0, records=memoryview(records))
        )

    def answer(self, *data: fetch.PartitionData) -> None:
        self.link.answered(answer(*data))
        self.replicas.scheduler.run_due()

    def sync(self) -> None:
        while self.disk.waiting:
            self.disk.run_one()
        self.replicas.scheduler.run_due()

    def last_fetch(self) -> fetch.FetchRequest:
        request = self.link.sent[-1]
        assert isinstance(request, fetch.FetchRequest)
        return request

    def claimed(self) -> dict[int, int]:
        """The fetch offset of each partition that the last fetch mentions."""
        return {
            part.partition: part.fetch_offset
            for topic in self.last_fetch().topics
            for part in topic.partitions
        }


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_records_are_claimed_only_once_they_are_synced(follower: Follower) -> None:
    follower.follow(0)
    follower.connect()
    fetches = len(follower.link.sent)
    follower.receive(0, 10)
    assert len(follower.link.sent) == fetches, "the only partition waits for the disk"
    follower.sync()
    assert follower.claimed() == {0: 10}


def test_a_new_leader_epoch_does_not_claim_what_is_being_synced(follower: Follower) -> None:
    follower.follow(0)
    follower.connect()
    follower.receive(0, 10)
    fetches = len(follower.link.sent)
    follower.follow(1)
    follower.replicas.scheduler.run_due()
    assert len(follower.link.sent) == fetches, "nothing of the partition is on disk yet"
    follower.sync()
    assert follower.claimed() == {0: 10}


def test_other_partitions_do_not_hold_up_the_one_that_is_synced(follower: Follower) -> None:
    """The fetch for them does not wait at the leader, or each acknowledgement would take half a second."""
    follower.follow(0, ZERO)
    follower.follow(0, ONE)
    follower.connect()
    assert follower.last_fetch().max_wait_ms == 500
    follower.receive(0, 1)
    assert follower.last_fetch().max_wait_ms == 0
    fetches = len(follower.link.sent)
    follower.answer()
    assert len(follower.link.sent) == fetches, "nothing was found: a pause"
    follower.replicas.clock.advance(DISK_POLL_MS)
    follower.replicas.scheduler.run_due()
    assert len(follower.link.sent) == fetches + 1
    follower.answer()
    follower.sync()
    assert follower.claimed() == {0: 1}, "the flush ends the pause"
    assert follower.last_fetch().max_wait_ms == 500
