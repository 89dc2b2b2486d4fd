"""Appending, reading and opening again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.errors import CorruptMessage, MessageTooLarge, OffsetOutOfRange, RecordListTooLarge
from barnabas.core.regions import FileRegion
from barnabas.records.batch import iterate_batches
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.storage.log import log as log_module
from barnabas.storage.log.log import Log
from tests.unit.storage.support import NOW_MS, Bench, batch, offsets, produce, read_batches


def test_appends_get_consecutive_offsets_and_the_leaders_epoch(bench: Bench) -> None:
    log = bench.open()
    first = produce(log, 3, epoch=5)
    second = produce(log, 2, epoch=5)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 2, 3)
    assert (second.first_offset, second.last_offset) == (3, 4)
    assert log.log_end_offset == 5
    found = read_batches(log)
    assert offsets(found) == [(0, 2), (3, 4)]
    assert {b.leader_epoch for b in found} == {5}
    assert all(b.is_valid_crc for b in found)
    assert log.leader_epochs.entries == [(5, 0)]


def test_a_refused_batch_leaves_no_trace(bench: Bench) -> None:
    log = bench.open()
    produce(log)
    bad = batch()
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_leader(bad, leader_epoch=0)
    assert (log.log_end_offset, log.segments.active.size_bytes) == (1, len(batch([bytes(20)])))


def test_settings_limit_the_size_of_a_batch(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), max_message_bytes=100).open()
    with pytest.raises(MessageTooLarge):
        produce(log, size=200)
    log = Bench(str(tmp_path), segment_bytes=200).open()
    with pytest.raises(RecordListTooLarge):
        produce(log, size=300)
    assert len(log.segments) == 1


def test_long_validations_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each inflates up to 32 MB. The batches of one request, or of several, must not do so together."""
    running, most = 0, 0
    both_began = threading.Barrier(2)

    def validated(*_: object, **__: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.05)
        running -= 1

    def run(validation: Callable[[], object]) -> None:
        both_began.wait(60)
        validation()

    monkeypatch.setattr(log_module, "validate_produce", validated)
    logs = [Bench(str(tmp_path / name), cleanup_policy="compact").open() for name in ("a", "b")]
    data = build_batch([(b"k", bytes(1 << 22), (), NOW_MS)], codec=Codec.ZSTD)
    validations = [log.validation(memoryview(data)) for log in logs]
    threads = [threading.Thread(target=run, args=(each,)) for each in validations if each is not None]
    assert len(threads) == 2
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == 1


def test_a_read_outside_the_log_is_out_of_range(bench: Bench) -> None:
    log = bench.open()
    produce(log, 3)
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, upper_offset=3)
    assert log.read(3, 100, upper_offset=3).size_bytes == 0


def test_a_read_starts_at_the_batch_that_holds_the_offset(bench: Bench) -> None:
    log = bench.open()
    for _ in range(5):
        produce(log, 10)
    for offset in range(50):
        data = log.read(offset, 1, upper_offset=50)
        assert isinstance(data.records, FileRegion)
        (found,) = iterate_batches(data.records.read())
        assert found.base_offset == offset // 10 * 10


def test_a_read_stops_below_the_upper_offset(bench: Bench) -> None:
    log = bench.open()
    for _ in range(5):
        produce(log, 10)
    data = log.read(10, 1 << 20, upper_offset=30)
    assert isinstance(data.records, FileRegion)
    assert offsets(iterate_batches(data.records.read())) == [(10, 19), (20, 29)]
    assert log.read(30, 1 << 20, upper_offset=30).size_bytes == 0


def test_without_min_one_batch_a_small_read_is_cut(bench: Bench) -> None:
    log = bench.open()
    produce(log, 10)
    data = log.read(0, 7, upper_offset=10, min_one_batch=False)
    assert data.size_bytes == 7
    assert data.is_first_batch_incomplete
    assert log.read(0, 0, upper_offset=10, min_one_batch=False).size_bytes == 0


def read_all_ways(log: Log) -> None:
    """Every offset answers the same from memory, from the index and from a bare scan."""
    expected = offsets(read_batches(log))
    for segment in log.segments:
        segment._recent_offsets.clear()
        segment._recent_positions.clear()
    assert offsets(read_batches(log)) == expected
    by_index = [read_batches(log, offset, 1)[0].base_offset for offset in range(log.log_end_offset)]
    for segment in log.segments:
        segment.offset_index.reset()
    assert [read_batches(log, offset, 1)[0].base_offset for offset in range(log.log_end_offset)] == by_index


def test_memory_index_and_scan_agree(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), index_interval_bytes=300, segment_bytes=4_000).open()
    for number in range(60):
        produce(log, 1 + number % 4, size=40)
    assert len(log.segments) > 2
    assert len(log.segments.first.offset_index) > 3
    read_all_ways(log)


def test_a_closed_log_opens_as_it_was(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=1_000, index_interval_bytes=200)
    log = bench.open()
    for number in range(30):
        produce(log, 2, epoch=number // 10, producer_id=9, producer_epoch=0, base_sequence=2 * number)
    expected = offsets(read_batches(log))
    producers = log.active_producers()
    log.close()
    again = bench.open(is_clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (0, 60)
    assert offsets(read_batches(again)) == expected
    assert again.leader_epochs.entries == [(0, 0), (1, 20), (2, 40)]
    assert again.active_producers() == producers
    assert again.flush_state.recovery_point == 60
    produce(again, producer_id=9, producer_epoch=0, base_sequence=60)
    assert offsets(read_batches(again)) == [*expected, (60, 60)]


def test_a_log_that_was_not_closed_opens_as_it_was(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), segment_bytes=1_000, index_interval_bytes=200)
    log = bench.open()
    for number in range(30):
        produce(log, 2, epoch=number // 10, producer_id=9, producer_epoch=0, base_sequence=2 * number)
    expected = offsets(read_batches(log))
    again = bench.open()
    assert offsets(read_batches(again)) == expected
    assert again.leader_epochs.entries == [(0, 0), (1, 20), (2, 40)]
    assert again.active_producers() == log.active_producers()
    assert [len(s.offset_index) for s in again.segments] == [len(s.offset_index) for s in log.segments]


def test_a_follower_keeps_the_leaders_offsets_and_epochs(bench: Bench, tmp_path: Path) -> None:
    leader = bench.open()
    for epoch in range(3):
        produce(leader, 4, epoch=epoch)
    data = leader.read(0, 1 << 20, upper_offset=12)
    assert isinstance(data.records, FileRegion)
    follower = Bench(str(tmp_path / "follower")).open()
    whole = data.records.read()
    info = follower.append_as_follower(whole[:-5])
    assert (info.first_offset, info.last_offset) == (0, 7)
    follower.append_as_follower(whole[info.size_bytes :])
    assert follower.segments.active.file.read_at(0, 1 << 20) == whole
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    with pytest.raises(OffsetOutOfRange):
        follower.append_as_follower(whole)


def test_an_idle_log_has_no_index_files_and_no_maps(bench: Bench) -> None:
    log = bench.open()
    produce(log)
    assert bench.names() == ["00000000000000000000.log"]
    log.close()
    assert bench.names(".index") == ["00000000000000000000.index"]


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), message_timestamp_type="LogAppendTime")
    log = bench.open()
    bench.clock.advance(5_000)
    info = produce(log, timestamp=12)
    assert info.log_append_time_ms == NOW_MS + 5_000
    assert read_batches(log)[0].max_timestamp == NOW_MS + 5_000
