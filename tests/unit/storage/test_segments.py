"""Rolling, retention and truncation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import OffsetOutOfRange, RecordListTooLarge
from barnabas.core.integers import INT_MAX
from barnabas.core.limits import INDEX_INTERVAL_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.core.steps import run_to_end
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.time_search import search_by_time, search_max_timestamp
from barnabas.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.storage.segment import segment as segment_module
from barnabas.storage.segment.batch_scan import Header, iterate_headers
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from tests.unit.storage.support import NOW_MS, Bench, batch, offsets, produce, read_batches

DAY_MS = 24 * 60 * 60 * 1000


def base_offsets(log) -> list[int]:  # type: ignore[no-untyped-def]
    return [segment.base_offset for segment in log.segments]


# -- rolling ----------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_it_grows_past_its_size(tmp_path: Path) -> None:
    one = len(batch([bytes(20)]))
    log = Bench(str(tmp_path), segment_bytes=3 * one).open()
    for _ in range(7):
        produce(log)
    assert base_offsets(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.segments] == [3 * one, 3 * one, one]


def test_batches_of_a_leader_are_divided_among_smaller_segments(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), segment_bytes=500).open()
    sizes = [100, 100, 900, 100, 900, 900, 100]
    written = b"".join(
        batch([bytes(size)], base_offset=number, leader_epoch=number // 3)
        for number, size in enumerate(sizes)
    )
    info = log.append_as_follower(written)
    assert (info.first_offset, info.last_offset, info.size_bytes) == (0, 6, len(written))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3, 4, 5, 6], "one to a large batch"
    assert b"".join(bytes(found.view()) for found in read_batches(log)) == written
    assert log.leader_epochs.entries == [(0, 0), (1, 3), (2, 6)]


def test_a_producer_cannot_write_more_than_a_segment(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), segment_bytes=500).open()
    with pytest.raises(RecordListTooLarge):
        produce(log, size=900)
    assert log.log_end_offset == 0


def test_a_copy_is_divided_where_offsets_are_too_far_apart_for_one_index(bench: Bench) -> None:
    log = bench.open()
    far = (1 << 31) + 5
    offset_of = [0, 3, far, far + 1]
    log.append_as_follower(b"".join(batch([b"value"], base_offset=offset) for offset in offset_of))
    assert [segment.base_offset for segment in log.segments] == [0, far]
    log.close()
    again = bench.open(is_clean=True)
    assert [found.base_offset for found in read_batches(again)] == offset_of


def test_a_segment_is_rolled_when_its_first_record_is_old(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), segment_ms=1_000).open()
    produce(log, timestamp=NOW_MS)
    produce(log, timestamp=NOW_MS + 1_000)
    assert base_offsets(log) == [0]
    produce(log, timestamp=NOW_MS + 1_001)
    assert base_offsets(log) == [0, 2]


def test_records_without_time_are_as_old_as_their_segment(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_ms=1_000)
    log = bench.open()
    produce(log, timestamp=-1)
    bench.clock.advance(1_001)
    produce(log, timestamp=-1)
    assert base_offsets(log) == [0, 1]


def test_a_compacted_topic_rolls_in_time_for_compaction(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), cleanup_policy=("compact",), max_compaction_lag_ms=500).open()
    log.append_as_leader(batch(timestamp=NOW_MS, key=b"k"), leader_epoch=0)
    log.append_as_leader(batch(timestamp=NOW_MS + 501, key=b"k"), leader_epoch=0)
    assert base_offsets(log) == [0, 1]


def test_the_age_of_a_segment_is_known_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_ms=1_000)
    log = bench.open()
    produce(log, timestamp=NOW_MS)
    log.close()
    log = bench.open(is_clean=True)
    produce(log, timestamp=NOW_MS + 1_001)
    assert base_offsets(log) == [0, 1]


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), segment_index_bytes=48, index_interval_bytes=0).open()
    for number in range(12):
        produce(log, timestamp=NOW_MS + number)
    assert len(log.segments) > 2
    assert all(len(segment.time_index) * 12 <= 48 for segment in log.segments)


def test_jitter_spreads_the_rolls(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), segment_ms=1_000, segment_jitter_ms=900).open()
    assert 0 <= log.segments.active.roll_jitter_ms < 900


def test_a_segment_spans_no_more_offsets_than_its_index_can_say(bench: Bench) -> None:
    log = bench.open()
    produce(log)
    far = RELATIVE_OFFSET_MAX + 5
    log.append_as_follower(batch(base_offset=far, leader_epoch=0))
    assert base_offsets(log) == [0, far]
    assert offsets(read_batches(log, 1)) == [(far, far)]


def test_rolling_an_empty_segment_does_nothing(bench: Bench) -> None:
    log = bench.open()
    assert log.roll() is log.segments.active
    assert len(log.segments) == 1


def test_a_closed_segment_has_complete_indexes_and_a_snapshot(bench: Bench) -> None:
    log = bench.open()
    produce(log, 3, timestamp=NOW_MS)
    log.roll()
    zeros = "0" * 20
    assert bench.names()[:3] == [f"{zeros}.index", f"{zeros}.log", f"{zeros}.timeindex"]
    assert f"{3:020d}.snapshot" in bench.names()
    assert log.segments.first.time_index.last() == (NOW_MS + 2, 2)
    assert log.flush_state.recovery_point == 3


# -- retention --------------------------------------------------------------------------------


def three_segments(bench: Bench):  # type: ignore[no-untyped-def]
    log = bench.open()
    for number in range(3):
        produce(log, 10, timestamp=NOW_MS + number * DAY_MS)
        if number < 2:
            log.roll()
    log.advance_high_watermark(30)
    return log


def test_old_segments_go_by_time(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=DAY_MS)
    log = three_segments(bench)
    assert delete_old_segments(log) == 0
    bench.clock.advance(DAY_MS + 10)
    assert delete_old_segments(log) == 1
    assert (log.log_start_offset, base_offsets(log)) == (10, [10, 20])
    bench.clock.advance(10 * DAY_MS)
    assert delete_old_segments(log) == 2
    assert (log.log_start_offset, log.log_end_offset, base_offsets(log)) == (30, 30, [30])
    assert produce(log).first_offset == 30


def test_a_high_watermark_holds_retention_back(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=0)
    log = bench.open()
    for _ in range(3):
        produce(log, 10)
        log.roll()
    log.advance_high_watermark(15)
    bench.clock.advance(DAY_MS)
    assert delete_old_segments(log) == 1
    assert log.log_start_offset == 10


def test_old_segments_go_by_size(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=-1)
    log = three_segments(bench)
    size = log.segments.first.size_bytes
    for limit, expected in ((3 * size, 0), (2 * size + 1, 0), (2 * size, 1), (0, 2)):
        log.update_config(Bench(str(tmp_path), retention_ms=-1, retention_bytes=limit).config)
        assert delete_old_segments(log) == expected


def test_a_compacted_topic_loses_only_what_lies_below_its_start(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    log = bench.open()
    for _ in range(3):
        log.append_as_leader(batch(key=b"k"), leader_epoch=0)
        log.roll()
    log.advance_high_watermark(3)
    bench.clock.advance(DAY_MS)
    assert delete_old_segments(log) == 0
    log.maybe_increment_log_start_offset(1, "records were deleted")
    assert delete_old_segments(log) == 1
    assert base_offsets(log) == [1, 2, 3]


def test_records_without_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=1_000)
    log = bench.open()
    produce(log, timestamp=-1)
    log.roll()
    log.advance_high_watermark(1)
    modified_ms = bench.files.modified_ms(log.segments.first.path(".log"))
    bench.clock._now_ms = modified_ms + 1_000  # the file's own time is real
    assert delete_old_segments(log) == 0
    bench.clock.advance(1)
    assert delete_old_segments(log) == 1


def test_deleted_files_stay_for_a_while(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=0, file_delete_delay_ms=500)
    log = three_segments(bench)
    data = log.read(0, 1 << 20, upper_offset=10)
    assert isinstance(data.records, FileRegion)
    bench.clock.advance(DAY_MS)
    assert delete_old_segments(log) > 0
    assert f"{0:020d}.log.deleted" in bench.names()
    bench.clock.advance(500)
    bench.scheduler.run_due()
    assert bench.names(".deleted") == []
    assert len(data.records.read()) == data.size_bytes, "a reader that holds the region can still read it"


def test_the_log_start_offset_moves_up_to_the_high_watermark(bench: Bench) -> None:
    log = bench.open()
    produce(log, 10, epoch=1)
    produce(log, 10, epoch=2)
    log.advance_high_watermark(15)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start_offset(16, "test")
    assert log.maybe_increment_log_start_offset(12, "test")
    assert not log.maybe_increment_log_start_offset(11, "test")
    assert log.leader_epochs.entries == [(2, 12)]
    with pytest.raises(OffsetOutOfRange):
        log.read(11, 100, upper_offset=20)
    assert read_batches(log, 12)[0].base_offset == 10, "the batch that holds the start is sent whole"


def test_producers_are_remembered_when_their_records_are_gone(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), retention_ms=0)
    log = bench.open()
    produce(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
    bench.clock.advance(1_000)
    log.advance_high_watermark(1)
    assert delete_old_segments(log) == 1
    for reopened in (log, bench.open(log_start_offset=1)):
        again = produce(reopened, 1, producer_id=1, producer_epoch=0, base_sequence=0)
        assert (again.is_duplicate, again.first_offset) == (True, 0)


# -- truncation -------------------------------------------------------------------------------


def test_truncation_removes_batches_and_what_is_derived_from_them(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=1_000, index_interval_bytes=100)
    log = bench.open()
    for number in range(40):
        produce(log, 2, epoch=number // 10, producer_id=1, producer_epoch=0, base_sequence=2 * number)
    log.advance_high_watermark(80)
    expected = offsets(read_batches(log))[:15]
    assert truncate_to(log, 30)
    assert (log.log_end_offset, log.high_watermark) == (30, 30)
    assert offsets(read_batches(log)) == expected
    assert log.leader_epochs.entries == [(0, 0), (1, 20)]
    (entry,) = log.active_producers()
    assert [known.last_offset for known in entry.batches] == [21, 23, 25, 27, 29]
    info = produce(log, 1, epoch=9, producer_id=1, producer_epoch=0, base_sequence=30)
    assert info.first_offset == 30
    assert offsets(read_batches(log)) == [*expected, (30, 30)]
    assert offsets(read_batches(bench.open())) == [*expected, (30, 30)]


def test_truncation_beyond_the_end_only_forgets_idle_epochs(bench: Bench) -> None:
    log = bench.open()
    produce(log, 5)
    log.leader_epochs.assign(4, 5)
    assert not truncate_to(log, 5)
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.log_end_offset == 5


def test_truncation_inside_a_batch_takes_the_whole_batch(bench: Bench) -> None:
    log = bench.open()
    produce(log, 5)
    produce(log, 5)
    truncate_to(log, 7)
    assert offsets(read_batches(log)) == [(0, 4)]
    assert log.log_end_offset == 7, "the leader said 7: that is where fetching goes on"


def test_truncation_lowers_the_recovery_point(bench: Bench) -> None:
    log = bench.open()
    produce(log, 5)
    produce(log, 5)
    log.flush()
    truncate_to(log, 5)
    assert log.flush_state.recovery_point == 5


def test_a_flush_under_way_does_not_vouch_for_what_replaces_truncated_records(bench: Bench) -> None:
    log = bench.open()
    produce(log, 5)
    produce(log, 5)
    work = log.plan_flush()
    assert work is not None
    truncate_to(log, 5)
    produce(log, 5)
    log.flush_completed(work())
    assert log.flush_state.recovery_point == 0


def test_an_aborted_transaction_is_forgotten_with_its_marker(bench: Bench) -> None:
    from tests.unit.storage.support import end_transaction

    log = bench.open()
    produce(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, commit=False)
    truncate_to(log, 1)
    assert aborted_transactions(log, 0, 1) == []
    assert log.producers.first_unstable_offset == 0


def test_starting_over_elsewhere(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=300)
    log = bench.open()
    for number in range(10):
        produce(log, 1, producer_id=1, producer_epoch=0, base_sequence=number)
    truncate_fully_and_start_at(log, 500)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (500, 500, 500)
    assert log.leader_epochs.entries == []
    assert log.active_producers() == []
    assert bench.names() == [f"{500:020d}.log", "leader-epoch-checkpoint"]
    assert produce(log).first_offset == 500
    assert bench.open(log_start_offset=500).log_end_offset == 501


def test_truncating_before_the_first_segment_starts_over_there(bench: Bench) -> None:
    log = bench.open()
    truncate_fully_and_start_at(log, 100)
    produce(log, 5)
    assert truncate_to(log, 40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


def test_a_large_interval_leaves_no_long_way_between_index_entries(tmp_path: Path) -> None:
    """A search reads each header between two entries. No setting makes that a whole segment."""
    log = Bench(str(tmp_path), index_interval_bytes=INT_MAX).open()
    for _ in range(6):
        produce(log, size=INDEX_INTERVAL_BYTES_MAX // 2)
    index = log.segments.active.offset_index
    assert [index.entry_at(slot)[0] for slot in range(len(index))] == [2, 4]
    assert log.config.index_interval_bytes == INT_MAX


def test_the_largest_timestamp_after_a_shutdown_needs_no_walk_over_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first append and the first search by time wait for it."""
    bench = Bench(str(tmp_path))
    log = bench.open()
    produce(log, timestamp=NOW_MS + 1)
    for _ in range(200):
        produce(log, timestamp=NOW_MS)
    log.close()
    headers = []

    def counted(*arguments: Any, **options: Any) -> Iterator[Header]:
        for header in iterate_headers(*arguments, **options):
            headers.append(header)
            yield header

    log = bench.open(is_clean=True, recovery_point=log.log_end_offset)
    monkeypatch.setattr(segment_module, "iterate_headers", counted)
    active = log.segments.active
    assert (active.max_timestamp, active.offset_of_max_timestamp) == (NOW_MS + 1, 0)
    assert len(headers) < 100

    truncate_to(log, 190)
    assert active.max_timestamp == NOW_MS + 1


def test_a_search_by_time_pauses_between_segments(tmp_path: Path) -> None:
    """Each may have to be opened, and retention may delete them meanwhile."""
    log = Bench(str(tmp_path), segment_bytes=100).open()
    for number in range(300):
        produce(log, timestamp=NOW_MS - number)
    assert sum(1 for _ in search_by_time(log, NOW_MS + 1, Budget())) >= 5

    search = search_max_timestamp(log, Budget())
    for _ in range(100):
        next(search)
    log.delete_segments(list(log.segments)[:150])
    found = run_to_end(search)
    assert found is not None
    assert found.offset == 150
