"""A run that is cut off, at every operation on the disk that it makes.

Whether the process dies or the power goes: the next start finds a whole log, in which each
part is either compacted or as it was, and a reader cannot tell when it happened.
"""

from __future__ import annotations

import pytest

from barnabas.records.record import Record
from barnabas.storage.files.names import CLEANED, DELETED, SWAP, TRANSACTION_INDEX
from barnabas.storage.log.log import Log
from barnabas.storage.segment.transaction_index import ENTRY, VERSION
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.cleaner.support import committed, compact, put, records, settle, start_cleaning
from tests.unit.storage.support import Bench, end_transaction

ROOT = "/disk"


class Cut(Exception):
    """The end of the machine."""


def prepared(seed: int) -> tuple[Bench, PowerCutFiles, Log]:
    """A log on disk with everything in it that compaction treats in its own way."""
    files = PowerCutFiles(seed)
    files.make_lasting_directory(ROOT)
    files.sync_directory("")
    bench = Bench(ROOT, files, cleanup_policy=("compact",), segment_bytes=1_000, index_interval_bytes=200)
    log = bench.open()
    for number in range(12):
        put(
            log,
            (f"k{number % 4}", str(number)),
            ("same", "x" * 40),
            producer_id=1,
            producer_epoch=0,
            base_sequence=2 * number,
        )
        if number % 3 == 0:
            fields = {
                "producer_id": 2,
                "producer_epoch": 0,
                "base_sequence": number // 3,
                "is_transactional": True,
            }
            put(log, (f"k{number % 4}", "undecided"), **fields)
            end_transaction(log, 2, commit=number % 2 == 0)
        if number == 5:
            put(log, ("k9", None))
    settle(log)
    log.flush()
    files.sync_directory(ROOT)
    return bench, files, log


def last_values(seen: list[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in seen}


def operations_of_a_run() -> int:
    bench, files, log = prepared(0)
    count = 0

    def note(_operation: str, _path: str) -> None:
        nonlocal count
        count += 1

    files.before = note
    compact(bench, log)
    assert len(log.segments) > 2
    return count


@pytest.mark.parametrize("is_power_cut", [True, False])
def test_a_run_may_be_cut_off_at_every_operation(is_power_cut: bool) -> None:
    survivors: set[int] = set()
    total = operations_of_a_run()
    for operation in range(1, total + 2):
        bench, files, log = prepared(operation)
        before, seen, end = last_values(committed(log)), records(log), log.log_end_offset
        recovery_point, left = log.flush_state.recovery_point, operation

        def count_down(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Cut

        files.before = count_down
        _, (error,) = start_cleaning(bench, log)
        assert (error is None) == (operation > total)
        files.before = None
        if is_power_cut:
            files.cut_power()
        log = bench.open(recovery_point=recovery_point)
        log.advance_high_watermark(log.log_end_offset)
        found = records(log)
        assert last_values(committed(log)) == before, f"cut before operation {operation}"
        assert [record for record in seen if record in found] == found
        assert log.log_end_offset == end
        assert not bench.names(CLEANED) + bench.names(SWAP) + bench.names(DELETED)
        survivors.add(len(found))
        compact(bench, log)
        assert last_values(committed(log)) == before
    assert len(survivors) > 2, "some runs were cut off before, some between, and some after their groups"


def test_an_empty_segment_that_was_being_swapped_in_takes_the_old_indexes_along() -> None:
    bench, files, log = prepared(3)
    first = log.segments.first
    files.write(first.path(TRANSACTION_INDEX), ENTRY.pack(VERSION, 2, 0, 1, 2))
    for suffix in (".log", ".index", ".timeindex"):
        files.write(f"{bench.directory}/{first.base_offset:020d}{suffix}.swap", b"")
    log = bench.open(recovery_point=log.flush_state.recovery_point)
    assert log.segments.first.size_bytes == 0
    assert log.segments.first.transaction_index.entries == []


@pytest.mark.parametrize("seed", range(6))
def test_a_value_outlives_the_unsynced_record_that_supersedes_it(seed: int) -> None:
    bench, files, log = opened(seed)
    put(log, ("k", "old"), ("other", "x" * 700))
    log.roll()
    log.flush()
    recovery_point = log.flush_state.recovery_point
    log.flush_by(lambda _: None)  # as on a slow disk: the segment is closed, and its sync is still to come
    put(log, ("k", "new"), ("another", "x" * 700))
    settle(log)
    second = log.segments.active.base_offset - 2

    def cut_at_the_second_group(_operation: str, path: str) -> None:
        if path.endswith(f"{second:020d}.log{CLEANED}"):
            raise Cut

    files.before = cut_at_the_second_group
    _, (error,) = start_cleaning(bench, log)
    assert isinstance(error, Cut)
    files.before = None
    files.cut_power()
    log = bench.open(recovery_point=recovery_point)
    log.advance_high_watermark(log.log_end_offset)
    assert [record.value for record in records(log) if record.key == b"k"] == [b"new"]


@pytest.mark.parametrize("seed", range(6))
def test_a_value_outlives_the_unsynced_marker_of_the_transaction_that_supersedes_it(seed: int) -> None:
    bench, files, log = opened(seed)
    put(log, ("k", "old"))
    put(log, ("k", "new"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    log.flush()
    recovery_point = log.flush_state.recovery_point
    end_transaction(log, 1, commit=True)
    log.advance_high_watermark(log.log_end_offset)
    compact(bench, log)
    files.cut_power()
    log = bench.open(recovery_point=recovery_point)
    log.advance_high_watermark(log.log_end_offset)
    assert [record.value for record in committed(log)] == [b"new"]


def opened(seed: int) -> tuple[Bench, PowerCutFiles, Log]:
    """An empty log, with its directory on disk."""
    files = PowerCutFiles(seed)
    files.make_lasting_directory(ROOT)
    files.sync_directory("")
    bench = Bench(ROOT, files, cleanup_policy=("compact",), segment_bytes=1_000, index_interval_bytes=200)
    log = bench.open()
    files.sync_directory(ROOT)
    return bench, files, log
