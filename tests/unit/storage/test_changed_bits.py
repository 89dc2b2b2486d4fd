"""One bit of an index is another than was written: no search takes its word.

Kafka's indexes have no checksum. Readers that follow a wrong entry would pass over records in silence, or get
aborted ones. So each answer of a damaged log is compared with that of the log before the damage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Files, RealFile, RealFiles
from barnabas.storage.log.aborted_transactions import aborted_transactions, upper_bound_offset
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate_to
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry
from tests.support.power_cut_files import PowerCutFiles
from tests.support.slices import max_timestamp_offset, offset_for_timestamp
from tests.unit.storage.support import NOW_MS, Bench, end_transaction, offsets, produce, read_batches

SECOND_MS = 1_000


def written(root: Path, seed: int, **config: Any) -> Bench:
    """A log of some segments on disk, with transactions, and timestamps that go up and down."""
    chance = random.Random(seed)
    settings = {"segment_bytes": 4_000, "index_interval_bytes": chance.choice([0, 250])} | config
    bench = Bench(str(root), **settings)
    log = bench.open()
    sequence = 0
    for number in range(100):
        time_ms = NOW_MS + SECOND_MS * number + chance.randint(-5, 5) * SECOND_MS
        if number % 5 == 4:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            produce(log, 2, timestamp=time_ms, is_transactional=True, **fields)
            sequence += 2
            end_transaction(log, 7, commit=number % 10 == 4)
        else:
            produce(log, chance.randint(1, 3), timestamp=time_ms, size=chance.randint(1, 80))
    log.close()
    return bench


def opened(bench: Bench) -> Log:
    log = bench.open(is_clean=True)
    log.advance_high_watermark(log.log_end_offset)
    return log


def fetched(log: Log, offset: int) -> tuple[object, ...]:
    """Records that a consumer with `read_committed` gets from this offset on."""
    data = log.read(offset, 300, upper_offset=log.last_stable_offset)
    aborted = aborted_transactions(log, offset, upper_bound_offset(log, data))
    content = data.records if isinstance(data.records, bytes) else data.records.read()
    needed = [each for each in aborted if each.first_offset <= _last_offset(content, offset)]
    return content, sorted(needed)


def _last_offset(content: bytes, offset: int) -> int:
    """The last that is in a fetch for sure: its last batch may be cut off."""
    return int.from_bytes(content[:8]) if content else offset


def answers(log: Log) -> list[object]:
    """Everything that a search in the indexes has a part in."""
    found: list[object] = [log.log_end_offset, [each.largest_timestamp for each in log.segments]]
    found += [fetched(log, offset) for offset in range(log.log_end_offset)]
    found += [offset_for_timestamp(log, NOW_MS + SECOND_MS * number) for number in range(-10, 120, 3)]
    found.append(max_timestamp_offset(log))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".txnindex.crc"])
def test_a_changed_bit_of_an_index_changes_no_answer(tmp_path: Path, seed: int, suffix: str) -> None:
    chance = random.Random(seed)
    bench = written(tmp_path, seed)
    expected = answers(opened(bench))
    for _ in range(6):
        path = Path(bench.directory) / chance.choice(bench.names(suffix))
        content = bytearray(path.read_bytes())
        position = chance.randrange(len(content))
        content[position] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        assert answers(opened(bench)) == expected, f"byte {position} of {path.name}"


def aborted_in(bench: Bench) -> list[AbortedTransactionEntry]:
    return [entry for segment in opened(bench).segments for entry in segment.transaction_index.entries]


def with_aborted(root: str, files: Files | None = None) -> Bench:
    """One closed segment with three aborted transactions of a producer that writes every batch."""
    bench = Bench(root, files, index_interval_bytes=0)
    log = bench.open()
    for sequence in range(9):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        produce(log, 1, is_transactional=True, **fields)
        if sequence % 3 == 2:
            end_transaction(log, 7, commit=False)
    log.roll()
    produce(log, 1)
    log.close()
    return bench


def test_every_changed_bit_of_a_transaction_index_is_noticed(tmp_path: Path) -> None:
    bench = with_aborted(str(tmp_path))
    path = Path(bench.directory) / f"{0:020d}.txnindex"
    whole, expected = path.read_bytes(), aborted_in(bench)
    assert len(expected) == 3
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert aborted_in(bench) == expected, f"bit {bit}"
        assert path.read_bytes() == whole, "the file is as it was"


@pytest.mark.parametrize("damage", ["emptied", "shorter", "gone", "an entry less"])
def test_a_transaction_index_that_lost_entries_is_derived_again(tmp_path: Path, damage: str) -> None:
    bench = with_aborted(str(tmp_path))
    path = Path(bench.directory) / f"{0:020d}.txnindex"
    expected = aborted_in(bench)
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(path, {"emptied": 0, "shorter": 40, "an entry less": 68}[damage])
    assert aborted_in(bench) == expected


@pytest.mark.parametrize(("position", "name"), [(9, "producer id"), (25, "last offset")])
def test_a_transaction_index_of_apache_kafka_is_compared_with_the_markers(
    tmp_path: Path, position: int, name: str
) -> None:
    bench = with_aborted(str(tmp_path))
    checksum = Path(bench.directory) / f"{0:020d}.txnindex.crc"
    path = Path(bench.directory) / f"{0:020d}.txnindex"
    expected = aborted_in(bench)
    checksum.unlink()
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    assert aborted_in(bench) == expected, name
    assert checksum.exists()


def test_a_transaction_index_without_a_checksum_gets_one(tmp_path: Path) -> None:
    bench = with_aborted(str(tmp_path))
    checksum = Path(bench.directory) / f"{0:020d}.txnindex.crc"
    content = checksum.read_bytes()
    checksum.unlink()
    assert len(aborted_in(bench)) == 3
    assert checksum.read_bytes() == content


def test_a_segment_without_aborted_transactions_has_no_checksum(tmp_path: Path) -> None:
    bench = with_aborted(str(tmp_path))
    assert bench.names(".txnindex.crc") == [f"{0:020d}.txnindex.crc"]
    log = opened(bench)
    truncate_to(log, 2)
    log.close()
    assert bench.names(".txnindex.crc") == []
    assert aborted_in(bench) == []


@pytest.mark.parametrize("is_kafkas", [False, True])
@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_crash_while_a_transaction_index_is_derived_again_leaves_a_right_one(
    is_power_cut: bool, is_kafkas: bool
) -> None:
    for at in range(1, 60):
        files = PowerCutFiles(at)
        files.make_lasting_directory("/disk")
        files.sync_directory("")
        bench = with_aborted("/disk", files)
        expected = aborted_in(bench)
        path = f"{bench.directory}/{0:020d}.txnindex"
        if is_kafkas:
            files.unlink(f"{path}.crc")
            files.sync_directory(bench.directory)
        files.corrupt(path, 9)
        seen = [0]

        def die(*_: str, at: int = at, seen: list[int] = seen) -> None:
            seen[0] += 1
            if seen[0] >= at:
                raise OSError(errno.EIO, "the process is gone")

        files.before = die
        with contextlib.suppress(OSError):
            opened(bench)
        files.before = None
        if is_power_cut:
            files.cut_power()
        assert aborted_in(bench) == expected, f"operation {at}"
        if seen[0] < at:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_behind_a_roll_takes_no_aborted_transaction(seed: int) -> None:
    """All records are on disk before the roll, and the recovery point is the start of the new segment."""
    files = PowerCutFiles(seed)
    files.make_lasting_directory("/disk")
    files.sync_directory("")
    bench = Bench("/disk", files, flush_messages=1)
    log = bench.open()
    for sequence in range(2):
        produce(log, 1, is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=sequence)
        end_transaction(log, 7, commit=False)
    log.flush_by(lambda _: None)
    log.roll()
    files.cut_power()
    again = bench.open(recovery_point=4)
    assert sorted(aborted_transactions(again, 0, 4)) == [(7, 0), (7, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_a_log_with_a_changed_bit_is_cut_and_goes_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    bench = written(tmp_path, seed, segment_bytes=1 << 20)
    log = opened(bench)
    before = read_batches(log)
    path = Path(bench.directory) / chance.choice(bench.names("index"))
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    log = opened(bench)
    end = chance.choice(before[1:]).base_offset
    truncate_to(log, end)
    produce(log, 2, epoch=1)
    assert offsets(read_batches(log)) == [*offsets(b for b in before if b.base_offset < end), (end, end + 1)]
    assert answers(log) == answers(log)


@pytest.mark.parametrize("damage", ["emptied", "shorter", "gone"])
def test_an_index_that_gets_shorter_while_it_is_used_is_derived_again(tmp_path: Path, damage: str) -> None:
    """A mapping of the file would end the process here."""
    bench = Bench(str(tmp_path), segment_bytes=200_000, index_interval_bytes=0)
    log = bench.open()
    for _ in range(2_500):
        produce(log, 1)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) > 1
    assert read_batches(log, 10, 1)[0].base_offset == 10
    path = Path(bench.directory) / f"{0:020d}.index"
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "emptied" else 1_000)
    for offset in range(0, 2_500, 50):
        assert read_batches(log, offset, 1)[0].base_offset == offset


class BadSector(RealFile):
    """A file whose every page is bad."""

    def read_at(self, position: int, length: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


class BadIndexes(RealFiles):
    def __init__(self) -> None:
        self.are_bad = False

    def open(self, path: str, *, create: bool = False) -> DataFile:
        if self.are_bad and path.endswith(".index"):
            return BadSector(os.open(path, os.O_RDWR))
        return super().open(path, create=create)


def test_an_index_that_cannot_be_read_is_an_error_of_the_disk(tmp_path: Path) -> None:
    files = BadIndexes()
    bench = Bench(str(tmp_path), files, segment_bytes=4_000, index_interval_bytes=0)
    log = bench.open()
    for _ in range(100):
        produce(log, 1)
    log.close()
    log = opened(bench)
    files.are_bad = True
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.read(10, 100, upper_offset=log.log_end_offset)
