"""Compaction: each rule about the records that a run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import CorruptMessage
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.legacy import LegacyMessage, iterate_any, iterate_message_records
from barnabas.records.record import iterate_records
from barnabas.storage.cleaner.cleaning import OffsetMapTooSmall
from barnabas.storage.cleaner.offset_map import SLOT_BYTES
from barnabas.storage.files.names import CLEANED, DELETED, LOG, SWAP, TRANSACTION_INDEX
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.producer_expiry import remove_expired_producers
from tests.support.slices import convert_down, max_timestamp_offset, offset_for_timestamp
from tests.unit.storage.cleaner.support import codecs, committed, compact, pairs, put, records, settle
from tests.unit.storage.support import NOW_MS, Bench, end_transaction, read_batches

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path), cleanup_policy=("compact",), delete_retention_ms=DAY_MS)


def test_only_the_last_value_of_each_key_stays(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), ("c", "1"))
    put(log, ("b", "2"))
    settle(log)
    assert compact(bench, log) == 5
    assert pairs(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert log.log_end_offset == 5


def test_the_clean_part_loses_what_the_dirty_part_supersedes(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), ("b", "1"))
    settle(log)
    clean_to = compact(bench, log)
    put(log, ("a", "2"))
    settle(log)
    assert compact(bench, log, clean_to) == 3
    assert pairs(log) == [(1, "b", "1"), (2, "a", "2")]


def test_the_active_segment_is_left_alone(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    settle(log)
    put(log, ("a", "2"), ("a", "3"))
    log.advance_high_watermark(log.log_end_offset)
    compact(bench, log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2]


def test_nothing_from_the_high_watermark_on_is_touched(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("a", "3"))
    put(log, ("a", "4"))
    log.roll()
    log.advance_high_watermark(3)
    assert compact(bench, log) == 2
    assert [offset for offset, _, _ in pairs(log)] == [1, 2, 3]


def test_nothing_from_an_open_transaction_on_is_touched(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, ("a", "4"))
    settle(log)
    assert compact(bench, log) == 2
    assert [offset for offset, _, _ in pairs(log)] == [1, 2, 3]


@pytest.mark.parametrize("codec", codecs())
def test_a_batch_that_loses_nothing_is_kept_byte_for_byte(bench: Bench, codec: Codec) -> None:
    log = bench.open()
    put(log, ("a", "1" * 300), ("b", "1" * 300), codec=codec)
    put(
        log,
        ("c", "1"),
        ("d", "x" * 500),
        ("c", "2"),
        codec=codec,
        producer_id=4,
        producer_epoch=1,
        base_sequence=9,
    )
    settle(log)
    before = [bytes(batch.view()) for batch in read_batches(log)]
    compact(bench, log)
    first, second = read_batches(log)
    assert bytes(first.view()) == before[0]
    assert bytes(second.view()) != before[1]
    assert (second.base_offset, second.last_offset, second.record_count) == (2, 4, 2)
    assert (second.codec, second.producer_id, second.base_sequence, second.last_sequence) == (codec, 4, 9, 11)
    assert second.is_valid_crc
    assert second.max_timestamp == NOW_MS + 2
    assert [(r.offset, r.timestamp) for r in iterate_records(second)] == [(3, NOW_MS + 1), (4, NOW_MS + 2)]


def test_a_tombstone_is_readable_for_its_retention_time(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), timestamp=NOW_MS + 5)
    settle(log)
    clean_to = compact(bench, log)
    assert pairs(log) == [(1, "b", "1"), (2, "a", None)]
    tombstone = read_batches(log)[-1]
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW_MS + DAY_MS
    assert next(iterate_records(tombstone)).timestamp == NOW_MS + 5

    bench.clock.advance(DAY_MS - 1)
    put(log, ("c", "1"))
    settle(log)
    clean_to = compact(bench, log, clean_to)
    assert (2, "a", None) in pairs(log)
    assert read_batches(log)[1].base_timestamp == NOW_MS + DAY_MS, "the horizon is set once"

    bench.clock.advance(1)
    put(log, ("d", "1"))
    settle(log)
    compact(bench, log, clean_to)
    assert [key for _, key, _ in pairs(log)] == ["b", "c", "d"]


def small_map(keys: int) -> int:
    """The bytes of a buffer that is full with so many keys, or a few less."""
    return int(keys / 0.9) * SLOT_BYTES


def test_a_tombstone_behind_a_full_map_has_its_whole_retention_time_left(bench: Bench) -> None:
    """Its key still has a value in front of it: only the run that removes the value starts the time."""
    log = bench.open()
    put(log, ("k1", "1"))
    for number in range(2, 60):
        put(log, (f"k{number}", "1"))
    put(log, ("k1", None))
    settle(log)
    clean_to = compact(bench, log, buffer_bytes=small_map(36))
    assert clean_to < 59
    bench.clock.advance(DAY_MS)
    while clean_to < log.log_end_offset:
        clean_to = compact(bench, log, clean_to, buffer_bytes=small_map(36))
    assert pairs(log)[-1] == (59, "k1", None)
    assert (0, "k1", "1") not in pairs(log)
    bench.clock.advance(DAY_MS)
    put(log, ("last", "1"))
    settle(log)
    compact(bench, log, clean_to)
    assert "k1" not in [key for _, key, _ in pairs(log)]


def test_transactions_behind_a_full_map_stay_what_they_are(bench: Bench) -> None:
    """The segment in which the map ends is rewritten whole, with its transaction index."""
    log = bench.open()
    for number in range(60):
        put(log, (f"k{number}", "committed"))
    fields = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    put(log, ("k1", "aborted"), ("k2", "aborted"), base_sequence=0, **fields)
    end_transaction(log, 9, commit=False)
    put(log, ("k3", "changed"), base_sequence=2, **fields)
    end_transaction(log, 9, commit=True)
    settle(log)
    clean_to: int | None = None
    while clean_to != log.log_end_offset:
        clean_to = compact(bench, log, clean_to, buffer_bytes=small_map(36))
        last = {record.key: record.value for record in committed(log)}
        assert (last[b"k1"], last[b"k2"], last[b"k3"]) == (b"committed", b"committed", b"changed")


def test_a_batch_with_a_tombstone_keeps_its_other_records_when_it_goes(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", None), ("b", "1"), ("c", "1"))
    settle(log)
    clean_to = compact(bench, log)
    bench.clock.advance(DAY_MS)
    put(log, ("c", "2"))
    settle(log)
    compact(bench, log, clean_to)
    assert pairs(log) == [(1, "b", "1"), (3, "c", "2")]
    assert [r.timestamp for r in records(log)] == [NOW_MS + 1, NOW_MS]


def test_records_without_a_key_are_dropped(bench: Bench) -> None:
    log = bench.open()
    data = build_batch([(None, b"lost", (), NOW_MS), (b"k", b"kept", (), NOW_MS)])
    log.update_config(Bench(bench.root).config)  # keyless records come from before the topic was compacted
    log.append_as_leader(data, leader_epoch=0)
    log.update_config(bench.config)
    settle(log)
    compact(bench, log)
    assert pairs(log) == [(1, "k", "kept")]


def test_the_last_sequence_of_a_known_producer_stays(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), ("a", "3"), producer_id=5, producer_epoch=0, base_sequence=1)
    put(log, ("a", "4"))
    put(log, ("b", "1"))
    settle(log)
    compact(bench, log)
    assert pairs(log) == [(3, "a", "4"), (4, "b", "1")]
    empty = read_batches(log)[0]
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (1, 2, 0)
    assert (empty.producer_id, empty.last_sequence, empty.max_timestamp) == (5, 2, NOW_MS + 1)


def test_the_end_of_the_cleaned_range_stays_known(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("b", "1"))
    settle(log)
    put(log, ("b", "2"), ("a", "2"))
    settle(log)
    compact(bench, log)
    assert read_batches(log)[-1].last_offset == 3


def test_the_last_batch_of_the_range_stays_even_when_it_is_empty(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    end_transaction(log, 7, commit=False)
    log.advance_high_watermark(log.log_end_offset)
    bench.clock.advance(bench.environment.config.producer_id_expiration_ms)
    remove_expired_producers(log)
    compact(bench, log)
    assert [(batch.base_offset, batch.record_count) for batch in read_batches(log)] == [
        (0, 1),
        (1, 0),
        (2, 1),
    ]


def test_a_batch_that_loses_its_newest_record_becomes_older(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), ("b", "1"), timestamp=NOW_MS + 1_000)
    put(log, ("b", "2"), timestamp=NOW_MS)
    settle(log)
    compact(bench, log)
    assert [batch.max_timestamp for batch in read_batches(log)] == [NOW_MS + 1_000, NOW_MS]
    assert log.segments.first.max_timestamp == NOW_MS + 1_000
    found = max_timestamp_offset(log)
    assert found is not None
    assert found.offset == 0


def test_the_snapshot_at_the_start_of_a_rewritten_segment_stays(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",), segment_bytes=400)
    log = bench.open()
    for number in range(12):
        put(log, (f"k{number}", "v" * 60), producer_id=1, producer_epoch=0, base_sequence=number)
    settle(log)
    compact(bench, log)
    starts = [segment.base_offset for segment in log.segments if segment.base_offset]
    assert bench.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in starts]


def test_an_aborted_transaction_goes_and_its_marker_follows(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 7, commit=False)
    put(log, ("b", "1"), producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    end_transaction(log, 7, commit=True)
    put(log, ("z", "1"))
    settle(log)
    seen = committed(log)
    clean_to = compact(bench, log)
    assert committed(log) == seen
    assert pairs(log) == [(0, "a", "1"), (3, "b", "1"), (5, "z", "1")]
    assert aborted_transactions(log, 0, log.log_end_offset), "its marker is still there"

    def compact_again() -> list[int]:
        """The offsets of the markers that a further run leaves."""
        nonlocal clean_to
        put(log, ("z", "2"))
        settle(log)
        clean_to = compact(bench, log, clean_to)
        return [batch.base_offset for batch in read_batches(log) if batch.is_control]

    assert compact_again() == [2, 4]
    assert aborted_transactions(log, 0, log.log_end_offset) == []
    assert [batch.has_delete_horizon for batch in read_batches(log) if batch.is_control] == [True, False]
    bench.clock.advance(DAY_MS - 1)
    assert compact_again() == [2, 4]
    bench.clock.advance(1)
    assert compact_again() == [4], "the data of the committed transaction is still there"
    assert [r.key for r in committed(log)] == [b"a", b"b", b"z"]


def test_a_transaction_whose_marker_lies_behind_the_range_is_known_to_be_aborted(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    end_transaction(log, 7, commit=False)
    put(log, ("c", "1"))
    log.advance_high_watermark(log.log_end_offset)
    compact(bench, log)
    assert pairs(log) == [(0, "a", "1"), (3, "c", "1")]
    assert [r.key for r in committed(log)] == [b"a", b"c"]


def test_small_segments_are_joined_and_old_files_go_later(bench: Bench) -> None:
    log = bench.open()
    for number in range(6):
        put(log, (f"k{number % 2}", str(number)))
        settle(log)
    assert len(log.segments) == 7
    compact(bench, log)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert pairs(log) == [(4, "k0", "4"), (5, "k1", "5")]
    assert not bench.names(CLEANED) + bench.names(SWAP)
    assert len(bench.names(LOG + DELETED)) == 6
    assert f"{0:020d}.snapshot" not in bench.names(DELETED)
    bench.clock.advance(log.config.file_delete_delay_ms)
    bench.scheduler.run_due()
    assert bench.names(DELETED) == []


def test_segments_are_joined_only_up_to_the_segment_size(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",), segment_bytes=400)
    log = bench.open()
    for number in range(12):
        put(log, (f"k{number}", "v" * 60))
    settle(log)
    before = len(log.segments)
    compact(bench, log)
    assert len(pairs(log)) == 12
    assert 2 < len(log.segments) <= before
    assert all(segment.size_bytes <= 400 for segment in log.segments)


def test_a_map_that_is_full_ends_the_run_early_and_the_next_goes_on(bench: Bench) -> None:
    log = bench.open()
    for number in range(60):
        put(log, (f"k{number}", "1"))
    for number in range(60):
        put(log, (f"k{number}", "2"))
    settle(log)
    clean_to, runs = 0, 0
    while clean_to < 120:
        progressed_to = compact(bench, log, clean_to, buffer_bytes=40 * 16)
        assert progressed_to > clean_to
        clean_to, runs = progressed_to, runs + 1
    assert runs > 2
    assert [(key, value) for _, key, value in pairs(log)] == [(f"k{n}", "2") for n in range(60)]


def test_a_batch_with_more_keys_than_the_map_holds_is_reported(bench: Bench) -> None:
    log = bench.open()
    put(log, *((f"k{number}", "1") for number in range(200)))
    settle(log)
    with pytest.raises(OffsetMapTooSmall):
        compact(bench, log, buffer_bytes=40 * 16)
    assert len(pairs(log)) == 200


def test_a_damaged_batch_stops_the_run_and_the_log_stays_as_it_is(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    settle(log)
    path = Path(log.segments.first.path(LOG))
    content = bytearray(path.read_bytes())
    content[-2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(CorruptMessage):
        compact(bench, log)
    assert len(read_batches(log)) == 2
    assert bench.names(CLEANED) == []


def test_messages_of_the_old_formats_are_compacted_too(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"), ("b", "1"), ("c", None))
    put(log, ("d", "1"), ("a", "2"), ("e", "1"), codec=Codec.GZIP)
    put(log, ("b", "2"))
    old = b"".join(bytes(batch.view()) for batch in read_batches(log))
    other = Bench(bench.root + "/old", cleanup_policy=("compact",))
    other.files.make_directory(other.directory)
    other.files.write(f"{other.directory}/{0:020d}.log", bytes(convert_down(old, 1)))
    legacy = other.open()
    settle(legacy)
    compact(other, legacy)
    assert all(batch.magic == 2 for batch in read_batches(log))
    found = []
    for each in iterate_any(legacy.segments.first.file.read_at(0, 1 << 20)):
        of = iterate_message_records(each) if isinstance(each, LegacyMessage) else iterate_records(each)
        found += [(r.offset, r.key, r.value) for r in of]
    assert found == [
        (2, b"c", None), (3, b"d", b"1"), (4, b"a", b"2"), (5, b"e", b"1"), (6, b"b", b"2"),
    ]  # fmt: skip


def test_the_indexes_of_a_new_segment_are_those_of_its_batches(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), cleanup_policy=("compact",), index_interval_bytes=300)
    log = bench.open()
    for number in range(100):
        put(log, (f"k{number % 40}", "v" * 50), timestamp=NOW_MS + 1000 * number)
    settle(log)
    compact(bench, log)
    segment = log.segments.first
    assert 10 < len(segment.offset_index) <= segment.size_bytes // 300
    headers = {header.position: header for header in segment.headers()}
    for slot in range(len(segment.offset_index)):
        relative, position = segment.offset_index.at(slot)
        assert headers[position].last_offset == segment.base_offset + relative
    assert segment.time_index.last() == (NOW_MS + 99_000, 99)
    for offset in range(100):
        found = log.read(offset, 1, upper_offset=100)
        assert found.records
        assert read_batches(log, offset)[0].last_offset >= offset
    found_at = offset_for_timestamp(log, NOW_MS + 80_000)
    assert found_at is not None
    assert found_at.offset == 80


def test_a_reader_keeps_the_file_that_it_was_given(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    settle(log)
    region = log.read(0, 1 << 20, upper_offset=2).records
    before = region.read()  # type: ignore[union-attr]
    compact(bench, log)
    bench.clock.advance(log.config.file_delete_delay_ms)
    bench.scheduler.run_due()
    assert region.read() == before  # type: ignore[union-attr]
    assert len(read_batches(log)) == 1


def test_a_log_without_transactions_gets_no_transaction_index(bench: Bench) -> None:
    log = bench.open()
    put(log, ("a", "1"))
    settle(log)
    compact(bench, log)
    assert bench.names(TRANSACTION_INDEX) == []


def test_offsets_may_lie_as_far_apart_as_64_bits_allow(bench: Bench) -> None:
    """The offset map counts in 40 bits: it ends before such a gap, and the next run goes on behind it."""
    log = bench.open()
    far = [0, 5, 1 << 31, 1 << 40, (1 << 40) + 3, 1 << 62]
    for number, offset in enumerate(far):
        rows = [(b"same", str(number).encode(), (), NOW_MS), (b"k%d" % number, b"v", (), NOW_MS)]
        log.append_as_follower(build_batch(rows, base_offset=offset, leader_epoch=0))
    settle(log)
    clean_to: int | None = None
    runs = 0
    while clean_to != log.log_end_offset:
        clean_to = compact(bench, log, clean_to)
        runs += 1
    assert runs == 3
    assert pairs(log) == [
        *((offset + 1, f"k{number}", "v") for number, offset in enumerate(far[:-1])),
        (far[-1], "same", "5"),
        (far[-1] + 1, "k5", "v"),
    ]
