"""Replica fetcher step by step: no socket, no task, and a manual clock."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NetworkException,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from barnabas.core.ids import BrokerId
from barnabas.core.scheduler import InlineBackground
from barnabas.protocol.messages import fetch, list_offsets
from barnabas.protocol.schema.message import Message
from barnabas.replication.follower.connection import Connection
from barnabas.replication.follower.replica_fetcher import ReplicaFetcher
from barnabas.replication.follower.steps import Connect, Rest, Send, Sync
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.replication.support import ME, OTHER, TOPIC_ID, ZERO, Replicas
from tests.unit.replication.test_leadership import order
from tests.unit.storage.support import batch

BOTH = (ME, OTHER)
SESSION = 77


class Link:
    """A connection whose requests the test answers."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answered: Callable[[Any], None]
        self.failed: Callable[[Exception], None]
        self.is_closed = False

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        return version_max or request_class.__schema__.versions.last

    def post(
        self,
        request: Message,
        response_class: type[Any],
        version: int,
        *,
        answered: Callable[[Any], None],
        failed: Callable[[Exception], None],
        timeout_ms: float,
    ) -> None:
        self.sent.append(request)
        self.answered, self.failed = answered, failed

    def close(self) -> None:
        self.is_closed = True


class Network:
    """Opens connections on the test's command."""

    def __init__(self) -> None:
        self.asked: list[BrokerId] = []
        self.connected: Callable[[Connection], None]
        self.failed: Callable[[Exception], None]

    def connect(
        self,
        broker_id: BrokerId,
        connected: Callable[[Connection], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.asked.append(broker_id)
        self.connected, self.failed = connected, failed


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def replicas(tmp_path: Path, network: Network) -> Replicas:
    return Replicas(str(tmp_path), connect=network.connect)


def follow(replicas: Replicas, leader_epoch: int) -> tuple[Partition, ReplicaFetcher]:
    partition = replicas.local.get_or_create(ZERO, TOPIC_ID)
    partition.become_follower(LeaderAndIsr(OTHER, leader_epoch, BOTH, BOTH))
    replicas.fetchers.follow(partition)
    return partition, replicas.fetchers._by_partition[ZERO].fetcher


def answer(*data: fetch.PartitionData, session_id: int = SESSION) -> fetch.FetchResponse:
    topic = fetch.FetchableTopicResponse(topic=ZERO.topic, topic_id=TOPIC_ID, partitions=list(data))
    return fetch.FetchResponse(session_id=session_id, responses=[topic] if data else [])


def offsets(offset: int) -> list_offsets.ListOffsetsResponse:
    part = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return list_offsets.ListOffsetsResponse(
        topics=[list_offsets.ListOffsetsTopicResponse(name=ZERO.topic, partitions=[part])]
    )


def asked(step: object) -> tuple[int, int, list[int]]:
    """Of a fetch: the session, its epoch, and the offsets of the partitions that are mentioned."""
    assert isinstance(step, Send)
    request = step.request
    assert isinstance(request, fetch.FetchRequest)
    positions = [part.fetch_offset for topic in request.topics for part in topic.partitions]
    return request.session_id, request.session_epoch, positions


def test_a_leader_is_followed_step_by_step(replicas: Replicas) -> None:
    partition, fetcher = follow(replicas, 0)
    link = Link()
    assert fetcher.next_step() == Connect(OTHER)
    assert asked(fetcher.connected(link)) == (0, 0, [0])
    records = memoryview(batch([b"a", b"b"], base_offset=0))
    step = fetcher.answered(answer(fetch.PartitionData(high_watermark=1, records=records)))
    assert asked(step) == (SESSION, 1, [2]), "what was appended says where we are"
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (2, 1)
    assert asked(fetcher.answered(answer(fetch.PartitionData(high_watermark=2)))) == (SESSION, 2, [])
    assert partition.log.high_watermark == 2
    refused = fetch.PartitionData(error_code=NotLeaderOrFollower.code)
    now_ms = replicas.clock.monotonic_ms()
    assert fetcher.answered(answer(refused)) == Rest(now_ms + 20)
    assert fetcher.next_step() == Rest(now_ms + 20)
    replicas.clock.advance(20)
    assert asked(fetcher.next_step()) == (SESSION, 3, [2]), "once more, after a pause"


def test_the_lag_of_a_fetcher_is_that_of_its_slowest_partition(replicas: Replicas) -> None:
    _, fetcher = follow(replicas, 0)
    fetcher.next_step()
    fetcher.connected(Link())
    records = memoryview(batch([b"a", b"b"], base_offset=0))
    fetcher.answered(answer(fetch.PartitionData(high_watermark=5, records=records)))
    assert replicas.fetchers.max_lag == 3
    fetcher.answered(answer(fetch.PartitionData(high_watermark=2)))
    assert replicas.fetchers.max_lag == 0


def test_an_empty_follower_starts_inside_the_leaders_first_batch(replicas: Replicas) -> None:
    """The leader's log starts at 3, in the middle of a batch, and is copied by whole batches."""
    partition, fetcher = follow(replicas, 0)
    truncate_fully_and_start_at(partition.log, 3)
    fetcher.next_step()
    fetcher.connected(Link())
    records = memoryview(batch([b"x"] * 5, base_offset=0))
    data = fetch.PartitionData(high_watermark=5, log_start_offset=3, records=records)
    fetcher.answered(answer(data))
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, log.segments.first.base_offset) == (3, 5, 0)


def test_a_lost_leader_is_sought_again_after_pauses_that_grow(replicas: Replicas) -> None:
    _, fetcher = follow(replicas, 0)
    link = Link()
    fetcher.next_step()
    fetcher.connected(link)
    for pause_ms in (20, 40, 80):
        now_ms = replicas.clock.monotonic_ms()
        assert fetcher.lost(NetworkException("gone")) == Rest(now_ms + pause_ms)
        assert link.is_closed
        assert fetcher.next_step() == Rest(now_ms + pause_ms), "whatever changes meanwhile"
        replicas.clock.advance(pause_ms)
        assert fetcher.next_step() == Connect(OTHER)
    assert asked(fetcher.connected(Link())) == (0, 0, [0]), "a new session"


def test_a_log_out_of_range_is_moved_into_the_leaders(replicas: Replicas) -> None:
    partition, fetcher = follow(replicas, 0)
    fetcher.next_step()
    fetcher.connected(Link())
    step = fetcher.answered(answer(fetch.PartitionData(error_code=OffsetOutOfRange.code)))
    for timestamp, offset in ((-1, 9), (-2, 5)):
        assert isinstance(step, Send)
        assert isinstance(step.request, list_offsets.ListOffsetsRequest)
        assert step.request.topics[0].partitions[0].timestamp == timestamp
        step = fetcher.answered(offsets(offset))
    assert asked(step) == (SESSION, 1, [5])
    assert partition.log.log_start_offset == 5


def test_the_driver_sends_where_an_answer_arrives(replicas: Replicas, network: Network) -> None:
    """No turn of the loop lies between an answer and the next fetch."""
    partition, _ = follow(replicas, 0)
    assert network.asked == [], "what else is followed in this turn is fetched with it"
    replicas.scheduler.run_due()
    assert network.asked == [OTHER]
    link = Link()
    network.connected(link)
    assert len(link.sent) == 1
    records = memoryview(batch([b"a"], base_offset=0))
    link.answered(answer(fetch.PartitionData(high_watermark=0, records=records)))
    assert (partition.log.log_end_offset, len(link.sent)) == (1, 2)
    link.failed(NetworkException("gone"))
    assert replicas.scheduler.run_due() == 0
    replicas.clock.advance(20)
    replicas.scheduler.run_due()
    assert network.asked == [OTHER, OTHER]
    replicas.close()
    late = Link()
    network.connected(late)
    assert late.is_closed, "nobody follows any more"


@pytest.mark.parametrize("error", [FetchSessionIdNotFound, InvalidFetchSessionEpoch])
def test_a_leader_that_has_lost_the_session_is_told_everything_again(
    replicas: Replicas, error: type[FetchSessionIdNotFound]
) -> None:
    _, fetcher = follow(replicas, 0)
    fetcher.next_step()
    fetcher.connected(Link())
    assert asked(fetcher.answered(answer())) == (SESSION, 1, [])
    assert asked(fetcher.answered(fetch.FetchResponse(error_code=error.code))) == (0, 0, [0])


@pytest.mark.parametrize("is_followed_again", [True, False])
def test_offsets_that_were_asked_of_a_previous_leader_cut_nothing(
    replicas: Replicas, is_followed_again: bool
) -> None:
    """The controller names another while the question is on its way."""
    replicas.append(replicas.lead(epoch=0), b"a", b"b")
    partition, fetcher = follow(replicas, 1)
    lost = fetcher._followed[ZERO]
    fetcher.next_step()
    fetcher.connected(Link())
    fetcher.answered(answer(fetch.PartitionData(error_code=OffsetOutOfRange.code)))
    assert lost.is_out_of_range
    fetcher.answered(offsets(0))
    if is_followed_again:
        follow(replicas, 2)
    else:
        replicas.fetchers.unfollow(ZERO)
    fetcher.answered(offsets(0))
    assert partition.log.log_end_offset == 2
    assert fetcher._followed.get(ZERO) is not lost


def test_records_of_a_previous_epoch_end_the_following(replicas: Replicas) -> None:
    partition, fetcher = follow(replicas, 0)
    former = fetcher._followed[ZERO]
    partition.become_follower(LeaderAndIsr(OTHER, 1, BOTH, BOTH))
    fetcher._take(former, fetch.PartitionData(records=memoryview(batch([b"late"]))))
    assert partition.log.log_end_offset == 0
    assert len(fetcher) == 0, "whoever ordered the new epoch begins to follow in it"


def test_the_start_of_a_log_does_not_pass_what_is_committed_here(replicas: Replicas) -> None:
    """The leader has deleted records that the follower has not fetched, or does not know as committed."""
    replicas.append(replicas.lead(epoch=0, isr=BOTH), b"a", b"b")
    partition, fetcher = follow(replicas, 1)
    followed = fetcher._followed[ZERO]
    fetcher._take(followed, fetch.PartitionData(high_watermark=1, log_start_offset=2))
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (1, 0)
    assert followed.failures == 0
    fetcher._take(followed, fetch.PartitionData(high_watermark=2, log_start_offset=2))
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (2, 2)


def test_an_elected_leader_follows_no_broker(replicas: Replicas) -> None:
    assert order(replicas, OTHER, 0) == 0
    fetcher = replicas.fetchers._by_partition[ZERO].fetcher
    assert len(fetcher) == 1
    assert order(replicas, ME, 1) == 0
    assert len(fetcher) == 0
    assert ZERO not in replicas.fetchers._by_partition


def test_a_log_that_was_moved_while_its_cut_was_synced_has_nothing_to_do_with_that(
    tmp_path: Path, network: Network
) -> None:
    """The directory that was to be synced is gone by then; the disk to which the log went is all right."""
    disks = [str(tmp_path / "a"), str(tmp_path / "b")]
    replicas = Replicas(*disks, connect=network.connect, segment_bytes=200)
    led = replicas.lead(epoch=0, isr=BOTH)
    for _ in range(6):
        replicas.append(led, b"x" * 100)
    partition, fetcher = follow(replicas, 1)
    fetcher.next_step()
    fetcher.connected(Link())
    diverging = fetch.EpochEndOffset(epoch=0, end_offset=2)
    step = fetcher.answered(answer(fetch.PartitionData(diverging_epoch=diverging)))
    assert isinstance(step, Sync)
    assert partition.log.log_end_offset == 2
    (other,) = set(disks) - {partition.log.log_directory.path}
    replicas.mover.move(ZERO, other)
    replicas.scheduler.run_due()
    assert partition.log.log_directory.path == other
    assert asked(fetcher.synced(step.run())) == (SESSION, 1, [2])
    assert replicas.log_manager.offline_directories == []


def test_a_log_for_which_there_is_no_descriptor_is_followed_on(network: Network) -> None:
    """After a start its file is opened by the first append, and the next attempt finds one."""
    files = PowerCutFiles()
    before = Replicas("/disk", files=files)
    before.append(before.lead(epoch=0, isr=BOTH), b"a")
    before.log_manager.close()
    replicas = Replicas("/disk", files=files, connect=network.connect)
    partition, fetcher = follow(replicas, 1)
    fetcher.next_step()
    fetcher.connected(Link())
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def starve(operation: str, path: str) -> None:
        if refusals and operation == "open" and path.endswith(".log"):
            raise refusals.pop()

    files.before = starve
    records = memoryview(batch([b"b"], base_offset=1))
    step = fetcher.answered(answer(fetch.PartitionData(high_watermark=1, records=records)))
    assert step == Rest(replicas.clock.monotonic_ms() + 20)
    assert (refusals, fetcher.failed_count, partition.log.log_end_offset) == ([], 0, 1)
    replicas.clock.advance(20)
    assert asked(fetcher.next_step())[2] == [1]
    fetcher.answered(answer(fetch.PartitionData(high_watermark=1, records=records)))
    assert partition.log.log_end_offset == 2


class NoThreads:
    """A background without threads until the test allows them."""

    def __init__(self) -> None:
        self.has_threads = True

    def submit(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        if not self.has_threads:
            raise RuntimeError("can't start new thread")
        InlineBackground().submit(work, done, failed)


def test_a_cut_that_could_not_even_be_synced_is_synced_later(tmp_path: Path, network: Network) -> None:
    """Else the fetcher would wait for its outcome for ever, with all that it follows."""
    background = NoThreads()
    replicas = Replicas(str(tmp_path), connect=network.connect, background=background)
    replicas.append(replicas.lead(epoch=0, isr=BOTH), b"a", b"b")
    log = follow(replicas, 1)[0].log
    replicas.scheduler.run_due()
    link = Link()
    network.connected(link)
    background.has_threads = False
    diverging = fetch.EpochEndOffset(epoch=0, end_offset=1)
    link.answered(answer(fetch.PartitionData(diverging_epoch=diverging)))
    assert (log.log_end_offset, link.is_closed) == (1, True)
    replicas.clock.advance(20)
    replicas.scheduler.run_due()
    again = Link()
    network.connected(again)
    assert log.flush_state.unsynced_cut is not None
    records = memoryview(batch([b"c"], base_offset=1))
    again.answered(answer(fetch.PartitionData(high_watermark=0, records=records)))
    assert log.log_end_offset == 2
    assert log.flush_state.unsynced_cut is None


def test_a_partition_that_cannot_be_appended_to_counts_as_failed(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = Replicas("/disk", files=PowerCutFiles(), connect=network.connect)
    partition, fetcher = follow(replicas, 1)
    fetcher.next_step()
    fetcher.connected(Link())

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(type(partition), "append_as_follower", broken)
    records = memoryview(batch([b"b"]))
    fetcher.answered(answer(fetch.PartitionData(high_watermark=1, records=records)))
    assert fetcher.failed_count == 1
