"""Requests of the controller: one after the other, with other work in between."""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.errors import KafkaStorageError, StaleControllerEpoch
from barnabas.core.files import Files
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from barnabas.replication.controller_orders import PARTITIONS_PER_SLICE
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.replication.support import ME, ONE, TOPIC_ID, ZERO, Replicas

COUNT = 2 * PARTITIONS_PER_SLICE + 1


class Turns:
    """Deferred work, done on the test's command."""

    def __init__(self, path: Path | str, files: Files | None = None) -> None:
        self._deferred: deque[Callable[[], None]] = deque()
        self.replicas = Replicas(str(path), files=files, defer=self._deferred.append)
        self.answers: list[LeaderAndIsrResponse | StopReplicaResponse] = []
        self.failures: list[Exception] = []

    def lead(self, count: int, *, controller_epoch: int = 1) -> None:
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index, leader=ME, leader_epoch=0, isr=[ME], replicas=[ME], is_new=True
            )
            for index in range(count)
        ]
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
        request = LeaderAndIsrRequest(controller_epoch=controller_epoch, topic_states=[topic])
        self.replicas.become_leader_or_follower(request, self.answers.append, self.failures.append)

    def stop(self, count: int) -> None:
        states = [StopReplicaPartitionState(partition_index=index) for index in range(count)]
        topic = StopReplicaTopicState(topic_name="t", partition_states=states)
        request = StopReplicaRequest(controller_epoch=1, topic_states=[topic])
        self.replicas.stop_replicas(request, self.answers.append, self.failures.append)

    @property
    def led(self) -> int:
        return sum(each.leadership.is_leader for each in self.replicas.table.partitions.values())

    def take(self) -> bool:
        """One turn; False if nothing was left to do."""
        if not self._deferred:
            return False
        self._deferred.popleft()()
        return True


def test_a_long_order_is_carried_out_in_slices(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.lead(COUNT)
    assert (turns.led, turns.answers) == (PARTITIONS_PER_SLICE, [])
    assert turns.take()
    assert (turns.led, turns.answers) == (2 * PARTITIONS_PER_SLICE, [])
    assert turns.take()
    assert turns.led == COUNT
    (answer,) = turns.answers
    assert isinstance(answer, LeaderAndIsrResponse)
    assert [each.error_code for each in answer.topics[0].partition_errors] == [0] * COUNT
    assert not turns.take()


def test_a_short_order_is_carried_out_at_once(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.lead(1)
    assert turns.led == len(turns.answers) == 1
    assert not turns.take()


def test_the_next_order_begins_when_the_previous_is_done(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.lead(COUNT)
    turns.stop(COUNT)
    turns.lead(1, controller_epoch=0)
    while not turns.answers:
        assert turns.led <= COUNT
        turns.take()
    assert turns.led == COUNT
    while turns.take():
        pass
    assert turns.led == 0
    assert [type(each) for each in turns.answers] == [
        LeaderAndIsrResponse,
        StopReplicaResponse,
        LeaderAndIsrResponse,
    ]
    assert turns.answers[-1].error_code == StaleControllerEpoch.code


def test_an_order_that_fails_is_told_and_the_next_is_carried_out(tmp_path: Path) -> None:
    turns = Turns(tmp_path)

    def fail() -> None:
        raise RuntimeError("no reason")

    close_idle, turns.replicas.fetchers.close_idle = turns.replicas.fetchers.close_idle, fail  # type: ignore[method-assign]
    turns.lead(1)
    assert [str(each) for each in turns.failures] == ["no reason"]
    turns.replicas.fetchers.close_idle = close_idle  # type: ignore[method-assign]
    turns.stop(1)
    assert len(turns.answers) == 1


def test_a_broker_that_stops_leaves_off(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.lead(COUNT)
    turns.stop(COUNT)
    turns.replicas.close()
    while turns.take():
        pass
    assert turns.led == PARTITIONS_PER_SLICE
    assert turns.answers == []


def test_an_order_that_finds_no_file_descriptor_is_to_be_given_again() -> None:
    """The request is refused as a whole: for a replica, the error would mean a failed disk."""
    files = PowerCutFiles()
    turns = Turns("/disk", files)
    turns.lead(1)

    def starve(operation: str, path: str) -> None:
        if "t-1" in path:
            raise OSError(errno.EMFILE, "Too many open files", path)

    files.before = starve
    turns.lead(3)
    assert turns.led == 2, "the others are led meanwhile"
    files.before = None
    turns.lead(3)
    assert turns.led == 3
    codes = [answer.error_code for answer in turns.answers]
    assert codes == [0, KafkaStorageError.code, 0]
    last = turns.answers[-1]
    assert isinstance(last, LeaderAndIsrResponse)
    stale = StaleControllerEpoch.code
    assert [each.error_code for each in last.topics[0].partition_errors] == [stale, 0, stale]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_log_that_was_begun_lies_in_no_directory_that_is_offline(is_deleted: bool) -> None:
    """Otherwise the replica would count as lost, though only a file descriptor was missing."""
    files = PowerCutFiles()
    replicas = Replicas("/a", "/b", files=files)

    def starve(operation: str, path: str) -> None:
        if operation == "open":
            raise OSError(errno.EMFILE, "Too many open files", path)

    files.before = starve
    with pytest.raises(KafkaStorageError):
        replicas.local.get_or_create(ZERO, TOPIC_ID)
    files.before = None
    begun, other = replicas.log_manager.live_directories
    other.take_offline(OSError(errno.EIO, "Input/output error"))
    if is_deleted:
        replicas.local.stop(ZERO, delete=True)
        assert not files.exists(f"{begun.path}/{ZERO}")
    else:
        assert replicas.local.get_or_create(ZERO, TOPIC_ID, is_new=False).log.log_directory is begun
    with pytest.raises(KafkaStorageError, match="may be in a directory that is offline"):
        replicas.local.get_or_create(ONE, TOPIC_ID, is_new=False)


@pytest.mark.parametrize("size", [1, COUNT])
def test_an_answer_that_cannot_be_told_holds_up_no_other_order(tmp_path: Path, size: int) -> None:
    turns = Turns(tmp_path)

    def gone(_: object) -> None:
        raise RuntimeError("the connection is gone")

    turns.lead(COUNT)
    request = StopReplicaRequest(controller_epoch=1, topic_states=[])
    turns.replicas.stop_replicas(request, gone, turns.failures.append)
    turns.stop(size)
    while turns.take():
        pass
    assert len(turns.answers) == 2
    assert turns.led == COUNT - size
    turns.stop(COUNT)
    while turns.take():
        pass
    assert turns.led == 0


def test_a_repeated_order_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A controller that restarts sends every state again; a line for each would bury the rest of the log."""
    turns = Turns(tmp_path)
    turns.lead(COUNT)
    while turns.take():
        pass
    caplog.set_level(logging.INFO)
    caplog.clear()
    turns.lead(COUNT + 1, controller_epoch=2)
    while turns.take():
        pass
    (line,) = [each.getMessage() for each in caplog.records if "LeaderAndIsr" in each.getMessage()]
    assert line == (
        f"LeaderAndIsr of controller 0 (epoch 2): ignored for {COUNT} of {COUNT + 1} partitions, because its"
        f" leader epoch is not newer than the current leader epoch: t-0, t-1, t-2 and {COUNT - 3} more"
    )
    assert turns.led == COUNT + 1
    last = turns.answers[-1]
    assert isinstance(last, LeaderAndIsrResponse)
    codes = [each.error_code for each in last.topics[0].partition_errors]
    assert codes == [StaleControllerEpoch.code] * COUNT + [0]
