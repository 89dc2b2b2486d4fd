"""Durability: acknowledged records are on disk, and records that the disk refuses are not acknowledged."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_to
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.support.settings import log_config
from tests.unit.storage.support import Bench, batch, produce, read_batches


@pytest.fixture
def files() -> PowerCutFiles:
    files = PowerCutFiles()
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    return files


def test_without_a_flush_interval_everything_may_be_acknowledged_at_once(files: PowerCutFiles) -> None:
    log = Bench("/disk", files).open()
    produce(log, 3)
    assert (log.durable_end_offset, log.flush_state.recovery_point) == (3, 0)


def test_one_sync_answers_all_that_piled_up(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files, flush_messages=1)
    background = ManualBackground()
    flushed: list[int] = []
    commit = GroupCommit(background, lambda log: flushed.append(log.durable_end_offset), bench.scheduler)
    log = bench.open()
    log.flush_by(commit.request)
    produce(log)
    assert (log.durable_end_offset, len(background.waiting)) == (0, 1)
    produce(log)
    produce(log)
    assert len(background.waiting) == 1, "one sync at a time"
    background.run_one()
    assert flushed == [1]
    assert log.durable_end_offset == 1, "the second and third came too late for the first sync"
    background.run_one()
    assert flushed == [1, 3]
    assert background.waiting == []
    assert not log.flush_state.is_due


def test_acknowledged_records_stay_so_when_a_flush_becomes_due(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files, flush_messages=3)
    background = ManualBackground()
    log = bench.open()
    log.flush_by(GroupCommit(background, lambda _: None, bench.scheduler).request)
    produce(log)
    produce(log)
    assert log.durable_end_offset == 2
    produce(log)
    assert log.durable_end_offset == 2
    background.run_one()
    assert log.durable_end_offset == 3


@pytest.mark.parametrize("seed", range(20))
def test_durable_records_survive_the_next_power_cut(seed: int) -> None:
    files = PowerCutFiles(seed)
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    bench = Bench("/disk", files, flush_messages=2, segment_bytes=600)
    background = ManualBackground()
    log = bench.open()
    log.flush_by(GroupCommit(background, lambda _: None, bench.scheduler).request)
    acknowledged = 0
    for number in range(30):
        produce(log, 1 + number % 3)
        if number % 4 == seed % 4 and background.waiting:
            background.run_one()
        acknowledged = log.flush_state.recovery_point
    files.cut_power()
    again = bench.open(recovery_point=acknowledged if seed % 2 else 0)
    assert again.log_end_offset >= acknowledged
    assert all(b.is_valid_crc for b in read_batches(again))


@pytest.mark.parametrize("seed", range(20))
def test_a_record_that_a_killed_broker_had_not_synced_is_synced_before_a_retry_is_acknowledged(
    seed: int,
) -> None:
    """The page cache outlives the process, so the record is found again; the next power cut takes it."""
    files = PowerCutFiles(seed)
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    bench = Bench("/disk", files, flush_messages=1)
    log = bench.open()
    produce(log)
    log.flush_by(lambda _: None)  # the thread that syncs is not reached
    produce(log, producer_id=5, producer_epoch=0, base_sequence=0)
    killed_at = log.flush_state.recovery_point
    again = bench.open(recovery_point=killed_at)
    background = ManualBackground()
    again.flush_by(GroupCommit(background, lambda _: None, bench.scheduler).request)
    retry = produce(again, producer_id=5, producer_epoch=0, base_sequence=0)
    assert retry.is_duplicate
    assert again.durable_end_offset == killed_at, "the record is not on disk"
    background.run_one()
    assert again.durable_end_offset == retry.last_offset + 1
    files.cut_power()
    assert bench.open(recovery_point=killed_at).log_end_offset == retry.last_offset + 1


def test_a_sync_that_a_truncation_overtook_is_repeated(files: PowerCutFiles) -> None:
    """Its outcome is void, and no append asks for another."""
    bench = Bench("/disk", files, flush_messages=1)
    background = ManualBackground()
    flushed: list[int] = []
    log = bench.open()
    log.flush_by(
        GroupCommit(background, lambda log: flushed.append(log.durable_end_offset), bench.scheduler).request
    )
    for base_offset in (0, 10, 20):
        log.append_as_follower(batch([b"x"] * 10, base_offset=base_offset, leader_epoch=1))
    truncate_to(log, 20)
    while background.waiting:
        background.run_one()
    assert (log.log_end_offset, log.durable_end_offset) == (20, 20)
    assert flushed[-1] == 20


def test_a_lower_flush_messages_takes_effect_at_once(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files)
    background = ManualBackground()
    log = bench.open()
    log.flush_by(GroupCommit(background, lambda _: None, bench.scheduler).request)
    produce(log, 3)
    log.advance_high_watermark(2)
    log.update_config(log_config(flush_messages=1))
    assert log.durable_end_offset == 2, "committed records stay so, the others wait for the disk"
    background.run_one()
    assert (log.flush_state.recovery_point, log.durable_end_offset) == (3, 3)


def refuse(operation: str, suffix: str) -> Callable[[str, str], None]:
    def before(happening: str, path: str) -> None:
        if happening == operation and path.endswith(suffix):
            raise OSError(28, "No space left on device")

    return before


def state_of(log: Log) -> tuple[object, ...]:
    active = log.segments.active
    return (
        log.log_end_offset,
        log.high_watermark,
        active.size_bytes,
        log.leader_epochs.entries,
        [repr(entry) for entry in log.active_producers()],
        log.producers.first_unstable_offset,
    )


@pytest.mark.parametrize("fault", ["error", "short"])
def test_a_failed_write_changes_nothing_and_takes_the_directory_offline(
    files: PowerCutFiles, fault: str
) -> None:
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log, 3, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    before = state_of(log)
    if fault == "error":
        files.before = refuse("write", ".log")
    else:
        files.write_limit_bytes = 30
    with pytest.raises(KafkaStorageError):
        produce(log, 3, epoch=5, producer_id=1, producer_epoch=0, base_sequence=3, is_transactional=True)
    assert state_of(log) == before
    assert bench.log_directory.failure is not None
    files.before = None
    with pytest.raises(KafkaStorageError):
        produce(log)
    with pytest.raises(KafkaStorageError):
        log.read(0, 100, upper_offset=3)
    assert bench.open().log_end_offset == 3


def test_a_failed_sync_acknowledges_nothing(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files, flush_messages=1)
    background = ManualBackground()
    flushed: list[Log] = []
    log = bench.open()
    log.flush_by(GroupCommit(background, flushed.append, bench.scheduler).request)
    produce(log)
    files.before = refuse("sync", ".log")
    background.run_one()
    assert flushed == []
    assert bench.log_directory.failure is not None
    assert log.durable_end_offset == 0


def test_a_flush_for_want_of_a_descriptor_is_tried_until_it_is_done(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files, flush_messages=1)
    flushed: list[Log] = []
    log = bench.open()
    log.flush_by(GroupCommit(bench.environment.background, flushed.append, bench.scheduler).request)
    left = [OSError(errno.EMFILE, "Too many open files")] * 2

    def before(happening: str, path: str) -> None:
        if left and happening == "sync_directory" and path.endswith("topic-0"):
            raise left.pop()

    files.before = before
    produce(log)
    assert log.durable_end_offset == 0
    produce(log)
    for _ in range(2):
        assert flushed == []
        bench.clock.advance(1_000)
        bench.scheduler.run_due()
    assert (flushed, log.durable_end_offset, log.flush_state.recovery_point) == ([log], 2, 2)
    assert bench.log_directory.failure is None


def test_a_failed_roll_takes_the_directory_offline(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log)
    files.before = refuse("open", "1.log")
    with pytest.raises(KafkaStorageError):
        log.roll()
    assert bench.log_directory.failure is not None
    assert len(log.segments) == 1


def test_everyone_is_told_once_that_a_directory_failed(files: PowerCutFiles) -> None:
    bench = Bench("/disk", files)
    bench.open()
    told: list[str] = []
    bench.log_directory.when_failed.append(lambda directory: told.append(directory.path))
    bench.log_directory.fail(OSError("first"))
    bench.log_directory.fail(OSError("second"))
    assert told == ["/disk"]
    assert str(bench.log_directory.failure) == "first"
