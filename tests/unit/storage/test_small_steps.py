"""Single steps whose order or care nothing else shows: each was left out once, and no other test noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import CorruptMessage, KafkaStorageError
from barnabas.core.files import RealFiles
from barnabas.core.scheduler import InlineBackground
from barnabas.storage.cleaner.cleanable import log_to_clean
from barnabas.storage.directory.directory_checkpoints import CheckpointWrite
from barnabas.storage.directory.directory_properties import CLEAN_SHUTDOWN
from barnabas.storage.files.environment import LogDirectory
from barnabas.storage.files.names import LOG
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.truncation import truncate_to
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry, TransactionIndex
from tests.support.background import ManualBackground
from tests.support.manual_time import ManualScheduler
from tests.support.power_cut_files import PowerCutFiles
from tests.support.slices import max_timestamp_offset
from tests.unit.storage.cleaner.support import compact, put, settle
from tests.unit.storage.support import NOW_MS, Bench, batch, end_transaction, produce, read_batches
from tests.unit.storage.test_log_manager import Broker, partition


def disk() -> PowerCutFiles:
    files = PowerCutFiles()
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    return files


def test_bytes_of_a_write_that_failed_do_not_stay_in_the_file() -> None:
    files = disk()
    log = Bench("/disk", files).open()
    size_bytes = produce(log, 3).size_bytes
    files.write_limit_bytes = 30
    with pytest.raises(KafkaStorageError):
        produce(log, 3)
    assert len(files.read(log.segments.active.path(LOG))) == size_bytes


def test_it_is_the_last_offset_of_an_append_that_an_index_must_reach(bench: Bench) -> None:
    log = bench.open()
    produce(log)
    log.append_as_follower(batch([b"value"] * 10, base_offset=RELATIVE_OFFSET_MAX - 5))
    assert [segment.base_offset for segment in log.segments] == [0, RELATIVE_OFFSET_MAX - 5]


def test_segments_behind_a_torn_one_leave_the_disk(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for _ in range(10):
        produce(log, 2)
    torn = [segment.base_offset for segment in log.segments][1]
    path = Path(bench.directory) / f"{torn:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    bench.open()
    assert [int(name[:20]) for name in bench.names(".log")] == [0, torn]
    assert {int(name[:20]) for name in bench.names() if name[0] == "0"} == {0, torn}


def test_segments_stay_until_the_snapshot_that_replaces_them_is_on_disk(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=1_000)
    background = ManualBackground()
    log = bench.open()
    log.flush_by(GroupCommit(background, lambda _: None, bench.scheduler).request)
    produce(log, 3, producer_id=5, producer_epoch=0, base_sequence=0)
    log.advance_high_watermark(3)
    bench.clock.advance(60_000)
    assert delete_old_segments(log) == 0
    assert bench.names(".log") == [f"{0:020d}.log", f"{3:020d}.log"]
    while background.waiting:
        background.run_one()
    assert delete_old_segments(log) == 1
    assert [entry.producer_id for entry in log.active_producers()] == [5]


def test_an_older_checkpoint_never_undoes_a_newer_one(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path))
    older = CheckpointWrite(RealFiles(), directory, "some-checkpoint", b"older")
    other = CheckpointWrite(RealFiles(), directory, "other-checkpoint", b"other")
    newer = CheckpointWrite(RealFiles(), directory, "some-checkpoint", b"newer")
    for write in (newer, older, other):
        write()
    assert (tmp_path / "some-checkpoint").read_bytes() == b"newer"
    assert (tmp_path / "other-checkpoint").read_bytes() == b"other"


def test_the_search_for_aborted_transactions_ends_by_the_last_stable_offset(tmp_path: Path) -> None:
    index = TransactionIndex(RealFiles(), str(tmp_path / "0.txnindex"), 0)
    # The second began before the first ended: its marker lies far behind, and it overlaps all the same.
    index.append(AbortedTransactionEntry(1, first_offset=4, last_offset=10, last_stable_offset=2))
    index.append(AbortedTransactionEntry(2, first_offset=2, last_offset=30, last_stable_offset=31))
    found: list[tuple[int, int]] = []
    assert index.collect(0, 8, found)  # type: ignore[arg-type]
    assert found == [(1, 4), (2, 2)]


def test_a_reader_hears_of_every_aborted_transaction_that_overlaps(bench: Bench) -> None:
    log = bench.open()
    for producer_id in (1, 2):
        produce(log, 2, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 2, commit=False)
    end_transaction(log, 1, commit=False)
    assert sorted(aborted_transactions(log, 0, 2)) == [(1, 0)]
    assert sorted(aborted_transactions(log, 0, 4)) == [(1, 0), (2, 2)]


def test_an_end_is_clean_only_when_every_log_is_closed() -> None:
    files = disk()
    broker = Broker("/disk", files=files)
    manager = broker.start()
    produce(manager.get_or_create(partition(0)))

    def before(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(LOG):
            assert not files.exists(f"/disk/{CLEAN_SHUTDOWN}")
            raise OSError(5, "Input/output error")

    files.before = before
    manager.close()
    files.before = None
    assert broker.failed == ["/disk"]
    assert not files.exists(f"/disk/{CLEAN_SHUTDOWN}")


def test_the_largest_time_goes_with_the_record_that_had_it(bench: Bench) -> None:
    log = bench.open()
    produce(log, 1, timestamp=NOW_MS)
    produce(log, 1, timestamp=NOW_MS + 9_000)
    truncate_to(log, 1)
    assert log.segments.active.max_timestamp == NOW_MS
    found = max_timestamp_offset(log)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS, 0)


def test_a_follower_takes_no_batch_with_a_wrong_checksum(bench: Bench) -> None:
    log = bench.open()
    good, bad = batch([b"good"], base_offset=0), batch([b"bad"], base_offset=1)
    bad[-2] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(good + bad)
    assert (log.log_end_offset, read_batches(log)) == (0, [])


def test_epochs_that_begin_where_the_log_ends_are_not_taken_from_the_file(bench: Bench) -> None:
    """Other brokers note an epoch before its first record; a follower must not say that it has any of it."""
    log = bench.open()
    produce(log, 10)
    log.close()
    (Path(bench.directory) / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n5 10\n6 12\n")
    assert bench.open(is_clean=True).leader_epochs.entries == [(0, 0)]


def test_recovery_does_not_move_the_recovery_point(bench: Bench) -> None:
    """Batches that recovery reads may be in memory only: only a flush moves the recovery point."""
    log = bench.open()
    produce(log, 4)
    log.release()
    again = bench.open(recovery_point=0)
    assert (again.log_end_offset, again.flush_state.recovery_point) == (4, 0)
    assert again.plan_flush() is not None


def test_nothing_of_an_open_transaction_is_cleaned(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",))
    log = bench.open()
    put(log, ("a", "1"))
    log.roll()
    put(log, ("b", "2"), producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    settle(log)
    target = log_to_clean(log, None, NOW_MS)
    assert target.first_uncleanable_offset == log.last_stable_offset == 1


def test_compaction_keeps_the_snapshot_at_the_start_of_its_segment(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("compact",))
    log = bench.open()
    for number in range(6):
        put(log, (f"key-{number}", "x" * 150))
    settle(log)
    compact(bench, log)
    starts = [segment.base_offset for segment in log.segments if segment.base_offset]
    assert len(starts) > 3
    assert [int(name[:20]) for name in bench.names(".snapshot")] == starts


def test_a_snapshot_from_before_the_log_says_nothing(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path))
    log = bench.open()
    produce(log, 2, producer_id=5, producer_epoch=0, base_sequence=0)
    log.roll()
    produce(log, 2)
    log.roll()
    produce(log, 2)
    log.advance_high_watermark(6)
    log.maybe_increment_log_start_offset(4, "test")
    log.flush()
    assert delete_old_segments(log) == 2
    log.release()
    directory = Path(bench.directory)
    (directory / f"{4:020d}.snapshot").rename(directory / f"{2:020d}.snapshot")
    assert bench.open(log_start_offset=4).active_producers() == []


def test_producers_that_expired_while_the_broker_was_down_do_not_come_back(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2, producer_id=5, producer_epoch=0, base_sequence=0)
    log.close()
    bench.clock.advance(bench.environment.config.producer_id_expiration_ms + 1)
    assert bench.open(is_clean=True).active_producers() == []


def test_an_upper_bound_is_the_first_entry_at_the_position(tmp_path: Path) -> None:
    index = OffsetIndex(RealFiles(), str(tmp_path / "0.index"), 0)
    for number in (1, 2, 3):
        index.append(10 * number, 100 * number)
    assert [index.slot_after(position) for position in (0, 100, 101, 300, 301)] == [0, 0, 1, 2, None]


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_shutdown_leaves_file_names_on_disk(seed: int) -> None:
    files = PowerCutFiles(seed)
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log, 2)
    log.flush()
    log.close()
    files.cut_power()
    assert bench.names(".snapshot") == [f"{2:020d}.snapshot"]
    assert bench.names(".index") == [f"{0:020d}.index"]


def test_a_cut_is_on_disk_before_a_new_segment_has_a_name() -> None:
    files = disk()
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log, 2)
    produce(log, 2)
    assert truncate_to(log, 2, is_sync_deferred=True)
    happened: list[tuple[str, str]] = []
    files.before = lambda operation, path: happened.append((operation, path[-4:]))
    log.roll()
    assert log.flush_state.unsynced_cut is None
    assert happened.index(("sync", LOG)) < happened.index(("open", LOG))


class NoThreads(ManualBackground):
    def submit(self, *_: object) -> None:
        raise RuntimeError("can't start new thread")


def test_a_flush_for_which_there_is_no_thread_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), flush_messages=1)
    log = bench.open()
    scheduler = ManualScheduler(bench.clock)
    commit = GroupCommit(NoThreads(), lambda _: None, scheduler)
    log.flush_by(commit.request)
    produce(log, 3)
    assert log.durable_end_offset == 0
    commit._background = InlineBackground()
    bench.clock.advance(100)
    scheduler.run_due()
    assert log.durable_end_offset == 3
