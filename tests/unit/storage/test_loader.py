"""Opening a log after a clean shutdown, a crash or damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.files.names import LOG
from barnabas.storage.log.aborted_transactions import aborted_transactions
from tests.support.power_cut_files import PowerCutFiles
from tests.support.settings import log_config
from tests.support.slices import max_timestamp_offset, offset_for_timestamp
from tests.unit.storage.cleaner.support import compact, put, settle
from tests.unit.storage.support import (
    NOW_MS,
    Bench,
    batch,
    end_transaction,
    offsets,
    produce,
    read_batches,
)
from tests.unit.storage.test_indexes import legacy_message


def path_of(bench: Bench, offset: int, suffix: str = LOG) -> Path:
    return Path(bench.directory) / f"{offset:020d}{suffix}"


@pytest.mark.parametrize("cut", [1, 50, 80])
def test_a_torn_tail_is_cut(bench: Bench, cut: int) -> None:
    log = bench.open()
    for _ in range(3):
        produce(log, 2)
    path = path_of(bench, 0)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    again = bench.open()
    assert again.log_end_offset == 4
    assert path.stat().st_size == len(content) // 3 * 2
    assert produce(again).first_offset == 4


def test_a_flipped_bit_ends_the_log_there(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for _ in range(10):
        produce(log, 2)
    victim = log.segments.floor(6)
    assert victim is not None
    content = bytearray(path_of(bench, victim.base_offset).read_bytes())
    content[70] ^= 4
    path_of(bench, victim.base_offset).write_bytes(content)
    again = bench.open()
    assert again.log_end_offset == victim.base_offset
    assert [segment.base_offset for segment in again.segments][-1] == victim.base_offset
    assert all(b.is_valid_crc for b in read_batches(again))


def test_recovery_reads_nothing_below_the_recovery_point(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for _ in range(10):
        produce(log, 2)
    log.flush()
    content = bytearray(path_of(bench, 0).read_bytes())
    content[70] ^= 4
    path_of(bench, 0).write_bytes(content)
    assert bench.open(recovery_point=20).log_end_offset == 20


def test_bytes_after_the_last_batch_are_cut(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2)
    with path_of(bench, 0).open("ab") as file:
        file.write(bytes(500))
    assert bench.open().log_end_offset == 2
    assert path_of(bench, 0).stat().st_size == log.segments.active.size_bytes


def test_a_hole_between_segments_ends_the_log(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for _ in range(10):
        produce(log, 2)
    size = log.segments.first.size_bytes
    second = [segment.base_offset for segment in log.segments][1]
    path_of(bench, 0).write_bytes(path_of(bench, 0).read_bytes()[: size // (second // 2)])
    again = bench.open()
    assert (again.log_end_offset, len(again.segments)) == (2, 1)


def test_a_gap_of_a_log_that_was_compacted_once_is_no_damage(tmp_path: Path) -> None:
    compacted = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("compact",))
    log = compacted.open()
    for number in range(10):
        log.append_as_follower(batch([bytes(200)], key=b"k%d" % number, base_offset=10 * number))
    log.flush()
    log.release()
    again = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("delete",)).open(recovery_point=0)
    assert offsets(read_batches(again)) == [(10 * number, 10 * number) for number in range(10)]


def test_compacted_segments_are_kept_when_the_topic_is_no_longer_compacted(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("compact",))
    log = bench.open()
    for number in range(12):
        put(log, (f"only-{number}", "x" * 60))
        put(log, ("again", "x" * 60))
    settle(log)
    compact(bench, log)
    log.flush()
    kept = offsets(read_batches(log))
    ends = [segment.read_next_offset() for segment in log.segments]
    assert [segment.base_offset for segment in log.segments][1:] != ends[:-1], "segments end before the next"
    log.release()
    bench.config = log_config(segment_bytes=300, cleanup_policy=("delete",))
    assert offsets(read_batches(bench.open(recovery_point=0))) == kept


@pytest.mark.parametrize("index", ["as it was", "lost", "torn", "gone"])
def test_a_compacted_log_ends_where_a_segment_has_lost_its_records(tmp_path: Path, index: str) -> None:
    """A power cut cuts a segment that was not synced. The next segment is on disk by chance."""
    bench = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("compact",))
    log = bench.open()
    for number in range(8):
        log.append_as_follower(batch([bytes(100)], key=b"k%d" % number, base_offset=10 * number))
    bases = [segment.base_offset for segment in log.segments]
    log.release()
    path_of(bench, bases[1]).write_bytes(b"")
    index_path = path_of(bench, bases[1], ".index")
    if index == "gone":
        index_path.unlink()  # the time index still knows more than the segment has
    elif index != "as it was":
        index_path.write_bytes(b"" if index == "lost" else index_path.read_bytes()[:3])
    again = bench.open()
    assert [segment.base_offset for segment in again.segments] == bases[:2]
    assert again.log_end_offset == bases[1]
    again.append_as_follower(batch([b"fetched again"], key=b"k", base_offset=bases[1]))
    again.release()


def test_a_segment_of_which_compaction_left_nothing_is_no_loss(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("compact",))
    log = bench.open()
    for number in range(24):
        put(log, ("again", "x" * 60) if number % 12 < 9 else (f"only-{number}", "x" * 60))
    settle(log)
    compact(bench, log)
    log.flush()
    kept = offsets(read_batches(log))
    empty = [segment for segment in log.segments if not segment.size_bytes]
    assert any(segment is not log.segments.active for segment in empty), "nothing to see"
    log.release()
    for _ in range(2):  # what recovery has looked at, it finds again
        again = bench.open()
        assert offsets(read_batches(again)) == kept
        again.release()


def test_segments_closed_without_their_end_are_believed_where_the_cleaner_has_been(tmp_path: Path) -> None:
    """As other brokers leave them: their index need not know the last batch."""
    bench = Bench(str(tmp_path), segment_bytes=300, cleanup_policy=("delete",))
    log = bench.open()
    for number in range(4):
        log.append_as_follower(batch([bytes(200)], base_offset=10 * number))
    log.release()
    for name in bench.names(".index"):
        (Path(bench.directory) / name).write_bytes(b"")
    again = bench.open(cleaned_offset=21)
    assert again.log_end_offset == 31
    again.release()


def test_a_segment_from_before_a_truncation_goes(bench: Bench) -> None:
    log = bench.open()
    for _ in range(5):
        produce(log, 2)
    path_of(bench, 6).write_bytes(bytes(batch([b"stale"], base_offset=6, leader_epoch=0)))
    again = bench.open()
    assert offsets(read_batches(again)) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert not path_of(bench, 6).exists()


def test_temporary_files_are_removed_and_foreign_ones_left_alone(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2)
    directory = Path(bench.directory)
    for name in (f"{0:020d}.log.deleted", f"{9:020d}.index.deleted", f"{7:020d}.log.cleaned"):
        (directory / name).write_bytes(b"x")
    for name in ("remote_log_snapshot_1", "leader-epoch-checkpoint.tmp", "notes.txt"):
        (directory / name).write_bytes(b"x")
    bench.open()
    names = bench.names()
    assert not [name for name in names if name.endswith((".deleted", ".cleaned"))]
    assert {"remote_log_snapshot_1", "leader-epoch-checkpoint.tmp", "notes.txt"} <= set(names)


def test_an_index_without_a_log_is_deleted(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2)
    path_of(bench, 40, ".index").write_bytes(b"")
    bench.open()
    assert not path_of(bench, 40, ".index").exists()


def test_a_finished_compaction_is_completed(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",))
    log = bench.open()
    for number in range(3):
        log.append_as_leader(batch([f"v{number}"], key=b"k"), leader_epoch=0)
        log.roll()
    log.close()
    survivor = path_of(bench, 1).read_bytes()
    path_of(bench, 0, ".log.swap").write_bytes(survivor)
    again = bench.open(is_clean=True)
    assert [segment.base_offset for segment in again.segments] == [0, 2, 3]
    assert offsets(read_batches(again)) == [(1, 1), (2, 2)]
    assert not bench.names(".swap")


def test_an_unfinished_compaction_is_undone(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",))
    log = bench.open()
    for number in range(3):
        log.append_as_leader(batch([f"v{number}"], key=b"k"), leader_epoch=0)
        log.roll()
    log.close()
    path_of(bench, 0, ".log.cleaned").write_bytes(b"half")
    path_of(bench, 1, ".log.swap").write_bytes(b"half")
    again = bench.open(is_clean=True)
    assert offsets(read_batches(again)) == [(0, 0), (1, 1), (2, 2)]
    assert not [name for name in bench.names() if name.endswith((".swap", ".cleaned"))]


def test_a_log_that_ends_before_its_start_is_empty_again(bench: Bench) -> None:
    log = bench.open()
    produce(log, 5)
    again = bench.open(log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset) == (100, 100)
    assert produce(again).first_offset == 100


def test_an_empty_directory_is_an_empty_log(bench: Bench) -> None:
    log = bench.open(log_start_offset=0)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (0, 0, 0)


def test_deleted_derived_files_are_derived_again(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=500, index_interval_bytes=100)
    log = bench.open()
    for number in range(20):
        produce(log, 1, epoch=number // 5, producer_id=1, producer_epoch=0, base_sequence=number,
                is_transactional=True)  # fmt: skip
        if number % 4 == 3:
            end_transaction(log, 1, commit=number % 8 == 7, epoch=number // 5)
    before = (log.leader_epochs.entries, log.active_producers(), aborted_transactions(log, 0, 99))
    log.close()
    for path in Path(bench.directory).iterdir():
        if path.suffix != LOG:
            path.unlink()
    for is_clean in (True, False):
        again = bench.open(is_clean=is_clean)
        assert (
            again.leader_epochs.entries,
            again.active_producers(),
            aborted_transactions(again, 0, 99),
        ) == before
        again.close()
        for path in Path(bench.directory).iterdir():
            if path.suffix != LOG:
                path.unlink()


def test_a_log_of_old_messages_opens(bench: Bench) -> None:
    Path(bench.directory).mkdir(parents=True)
    old = legacy_message(0, 0, b"a") + legacy_message(1, 1, b"b", timestamp=NOW_MS)
    path_of(bench, 0).write_bytes(old)
    log = bench.open()
    assert (log.log_end_offset, log.leader_epochs.entries) == (2, [])
    data = log.read(1, 1 << 20, upper_offset=2)
    assert not isinstance(data.records, bytes)
    assert data.records.read() == legacy_message(1, 1, b"b", timestamp=NOW_MS)
    assert produce(log, epoch=3).first_offset == 2
    assert offset_for_timestamp(log, NOW_MS) == (NOW_MS, 1, -1)


def test_snapshots_are_kept_at_segment_starts_and_at_the_end(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for _ in range(10):
        produce(log, 2)
    log.close()
    path_of(bench, 5, ".snapshot").write_bytes(path_of(bench, 20, ".snapshot").read_bytes())
    path_of(bench, 99, ".snapshot").write_bytes(path_of(bench, 20, ".snapshot").read_bytes())
    again = bench.open(is_clean=True)
    found = [int(name[:20]) for name in bench.names(".snapshot")]
    assert found == [*[s.base_offset for s in again.segments][1:], 20]


def test_times_lead_to_offsets(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=700, index_interval_bytes=150)
    log = bench.open()
    times = [10, 30, 20, 40, 40, 35, 90, 60, 70, 80, 100, 95]
    for number, time in enumerate(times):
        produce(log, 1, epoch=number // 4, timestamp=time, size=40)
    assert len(log.segments) > 1
    for reopened in (log, bench.open()):
        for wanted in range(101):
            expected = next(n for n, time in enumerate(times) if time >= wanted)
            assert offset_for_timestamp(reopened, wanted) == (times[expected], expected, expected // 4)
        assert offset_for_timestamp(reopened, 101) is None
        assert max_timestamp_offset(reopened) == (100, 10, 2)


def test_a_time_inside_a_batch_leads_to_its_record(bench: Bench) -> None:
    log = bench.open()
    produce(log, 10, timestamp=100)
    assert offset_for_timestamp(log, 104) == (104, 4, 0)
    log.advance_high_watermark(10)
    log.maybe_increment_log_start_offset(6, "test")
    assert offset_for_timestamp(log, 104) == (106, 6, 0)
    assert max_timestamp_offset(log) == (109, 9, 0)


def test_an_empty_log_has_no_times(bench: Bench) -> None:
    log = bench.open()
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log) is None


def test_bytes_of_an_older_life_of_the_file_are_cut(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2)
    produce(log, 2)
    with path_of(bench, 0).open("ab") as file:
        file.write(bytes(batch([b"old"], base_offset=1, leader_epoch=0)))
    assert offsets(read_batches(bench.open())) == [(0, 1), (2, 3)]


def test_recovered_batches_say_which_epochs_there_were(bench: Bench) -> None:
    log = bench.open()
    produce(log, 2, epoch=0)
    produce(log, 2, epoch=2)
    (Path(bench.directory) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 3\n")
    assert bench.open().leader_epochs.entries == [(0, 0), (2, 2)]


@pytest.mark.parametrize("seed", range(10))
def test_records_that_recovery_cuts_do_not_come_back(seed: int) -> None:
    files = PowerCutFiles(seed)
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log, 2)
    log.flush()
    files.sync_directory("")
    path = f"{bench.directory}/{0:020d}.log"
    files.open(path).write_at(log.segments.active.size_bytes, b"torn")
    files.sync(path)
    bench.open(recovery_point=2)
    files.cut_power()
    assert len(files.read(path)) == log.segments.active.size_bytes


def test_a_snapshot_that_is_there_is_not_written_again() -> None:
    files = PowerCutFiles()
    bench = Bench("/disk", files)
    log = bench.open()
    produce(log, producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll()
    touched: list[str] = []
    files.before = lambda operation, path: touched.append(path) if operation == "write" else None
    log.close()
    assert not [path for path in touched if path.endswith(".snapshot")]
