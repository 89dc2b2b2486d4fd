"""Offset, time and transaction index, and the walk over batches."""

from __future__ import annotations

import errno
import random
import struct
import zlib
from pathlib import Path

import pytest

from barnabas.core.files import RealFiles
from barnabas.storage.files.failures import GarbledLog
from barnabas.storage.segment import sparse_index as index_module
from barnabas.storage.segment.batch_scan import (
    RECOVERY_CHUNK_BYTES,
    LegacyBatch,
    find_batch,
    iterate_headers,
    iterate_valid_batches,
)
from barnabas.storage.segment.offset_index import OffsetIndex
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry, TransactionIndex
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.support import NOW_MS, Bench, batch, offsets, position_before, produce, read_batches

FILES = RealFiles()


@pytest.fixture(params=[16, 1 << 20], ids=["in the file", "in memory"])
def tail_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(index_module, "TAIL_BYTES_MAX", request.param)
    return int(request.param)


@pytest.mark.usefixtures("tail_bytes")
def test_an_offset_index_finds_where_to_start(tmp_path: Path) -> None:
    index = OffsetIndex(FILES, str(tmp_path / "0.index"), 100)
    entries = [(100 + 7 * n, 1000 * n) for n in range(1, 50)]
    for entry in entries:
        index.append(*entry)
    for offset in range(100, 480):
        expected = max((position for last, position in entries if last <= offset), default=0)
        assert position_before(index, offset) == expected
    assert index.slot_after(1500) == 1
    assert index.at(1) == (14, 2_000)
    assert index.slot_after(49_001) is None


@pytest.mark.usefixtures("tail_bytes")
def test_an_offset_index_is_cut_and_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "0.index")
    index = OffsetIndex(FILES, path, 0)
    for n in range(1, 20):
        index.append(n, 10 * n)
    index.truncate_to(10)
    assert len(index) == 9
    index.append(12, 120)
    assert position_before(index, 100) == 120
    index.create()
    again = OffsetIndex(FILES, path, 0, file_bytes=Path(path).stat().st_size)
    assert [again.at(n) for n in range(10)] == [*[(n, 10 * n) for n in range(1, 10)], (12, 120)]


@pytest.mark.usefixtures("tail_bytes")
def test_a_time_index_only_ascends(tmp_path: Path) -> None:
    index = TimeIndex(FILES, str(tmp_path / "0.timeindex"), 10)
    for timestamp, offset in ((5, 12), (5, 14), (3, 15), (9, 20), (11, 30)):
        index.maybe_append(timestamp, offset)
    assert [index.at(n) for n in range(len(index))] == [(5, 2), (9, 10), (11, 20)]
    assert index.last() == (11, 30)
    found = [index.entry_before(t) for t in (5, 6, 9, 10, 50)]
    assert found == [None, (5, 12), (5, 12), (9, 20), (11, 30)]
    index.truncate_to(20)
    assert index.last() == (5, 12)
    index.maybe_append(8, 22)
    assert index.last() == (8, 22)


def test_an_index_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(struct.pack(">iiii", 50, 100, 10, 20))
    with pytest.raises(CorruptIndex):
        position_before(OffsetIndex(FILES, str(path), 0, file_bytes=16), 60)
    path.write_bytes(struct.pack(">iiii", 50, 100, 0, 0))
    with pytest.raises(CorruptIndex):
        position_before(OffsetIndex(FILES, str(path), 0, file_bytes=16), 60)
    path.write_bytes(struct.pack(">qiqi", 50, 100, 10, 20))
    with pytest.raises(CorruptIndex):
        TimeIndex(FILES, str(path), 0, file_bytes=24).last()


def test_a_transaction_index_is_kept_in_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "0.txnindex")
    index = TransactionIndex(FILES, path, 0)
    entries = [AbortedTransactionEntry(n, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(5)]
    for entry in entries:
        index.append(entry)
    assert Path(path).read_bytes()[:34] == struct.pack(">hqqqq", 0, *entries[0])
    again = TransactionIndex(FILES, path, 0, file_bytes=5 * 34)
    again.check()
    assert again.entries == entries
    again.truncate_to(25)
    assert TransactionIndex(FILES, path, 0, file_bytes=68).entries == entries[:2]


@pytest.mark.parametrize("content", [b"x" * 33, struct.pack(">hqqqq", 1, 0, 0, 0, 0)])
def test_a_damaged_transaction_index_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0.txnindex"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex):
        TransactionIndex(FILES, str(path), 0, file_bytes=len(content)).check()


# -- healing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [b"\xff" * 80, b"\0" * 80, struct.pack(">ii", 3, 17) * 10],
    ids=["ones", "zeros", "positions inside batches"],
)
def test_a_damaged_index_heals_when_it_is_used(tmp_path: Path, damage: bytes) -> None:
    bench = Bench(str(tmp_path), index_interval_bytes=100, segment_bytes=3_000)
    log = bench.open()
    for _ in range(60):
        produce(log, 2)
    expected = [b.base_offset for b in read_batches(log)]
    log.close()
    for name in bench.names(".index"):
        (Path(bench.directory) / name).write_bytes(damage)
    log = bench.open(is_clean=True)
    assert log.log_end_offset == 120
    assert [b.base_offset for b in read_batches(log)] == expected
    assert [read_batches(log, offset, 1)[0].base_offset for offset in range(120)] == [
        offset // 2 * 2 for offset in range(120)
    ]


def test_missing_and_partial_indexes_are_rebuilt(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), index_interval_bytes=4096, segment_bytes=50_000)
    log = bench.open()
    for number in range(120):
        produce(log, 1, size=1_000, timestamp=number)
    log.close()
    before = {name: (Path(bench.directory) / name).read_bytes() for name in bench.names("index")}
    (Path(bench.directory) / bench.names(".timeindex")[0]).unlink()
    (Path(bench.directory) / bench.names(".index")[1]).write_bytes(b"12345")
    bench.open(is_clean=True).close()
    after = {name: (Path(bench.directory) / name).read_bytes() for name in bench.names("index")}
    assert {name: len(content) for name, content in after.items()} == {
        name: len(content) for name, content in before.items()
    }


def test_an_index_is_rebuilt_with_the_interval_of_its_topic(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), index_interval_bytes=20_000)
    log = bench.open()
    for number in range(120):
        produce(log, 1, size=1_000, timestamp=number)
    log.close()
    (index,) = (Path(bench.directory) / name for name in bench.names(".index"))
    before = index.read_bytes()
    index.unlink()
    bench.open(is_clean=True).close()
    assert index.read_bytes() == before


# -- walking ----------------------------------------------------------------------------------


def legacy_message(offset: int, magic: int, value: bytes, timestamp: int = 5) -> bytes:
    body = bytes([magic, 0]) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def segment_file(tmp_path: Path, content: bytes):  # type: ignore[no-untyped-def]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    return FILES.open(str(path))


def test_old_messages_are_stepped_over_and_checked(tmp_path: Path) -> None:
    content = legacy_message(0, 0, b"a") + legacy_message(1, 1, b"b") + bytes(batch(base_offset=2))
    file = segment_file(tmp_path, content + legacy_message(3, 0, b""))
    end = len(content) + len(legacy_message(3, 0, b""))
    headers = list(iterate_headers(file, 0, end))
    assert [(h.last_offset, h.magic) for h in headers] == [(0, 0), (1, 1), (2, 2), (3, 0)]
    assert headers[1].max_timestamp == 5
    valid = [b for _, b in iterate_valid_batches(file, end)]
    assert [b.last_offset for b in valid] == [0, 1, 2, 3]
    assert isinstance(valid[0], LegacyBatch)
    broken = bytearray(content)
    broken[20] ^= 1
    assert list(iterate_valid_batches(segment_file(tmp_path, bytes(broken)), len(broken))) == []


def test_a_search_crosses_chunks(tmp_path: Path) -> None:
    chance = random.Random(3)
    content, offsets = b"", []
    for offset in range(300):
        offsets.append(len(content))
        content += bytes(batch([chance.randbytes(chance.choice([1, 100, 9_000]))], base_offset=offset))
    file = segment_file(tmp_path, content)
    for offset in range(0, 300, 7):
        found = find_batch(file, 0, len(content), offset)
        assert found is not None
        assert found.position == offsets[offset]
    assert find_batch(file, 0, len(content), 300) is None


def test_garbage_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    file = segment_file(tmp_path, bytes(batch()) + b"\xee" * 200)
    with pytest.raises(GarbledLog):
        list(iterate_headers(file, 0, len(batch()) + 200))
    with pytest.raises(GarbledLog):
        find_batch(file, len(batch()), len(batch()) + 200, 5)


def test_a_batch_larger_than_the_chunk_is_verified(tmp_path: Path) -> None:
    large = bytes(batch([bytes(RECOVERY_CHUNK_BYTES + 10)]))
    content = bytes(batch()) + large + bytes(batch())
    file = segment_file(tmp_path, content)
    assert [position for position, _ in iterate_valid_batches(file, len(content))] == [
        0,
        len(batch()),
        len(batch()) + len(large),
    ]
    assert len(list(iterate_valid_batches(file, len(content) - 1))) == 2


def test_damage_met_by_the_first_append_after_a_start_costs_no_offset(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), index_interval_bytes=0)
    log = bench.open()
    for newer_ms in (0, 0, 10, 0, 0, 0):
        produce(log, timestamp=NOW_MS + newer_ms)
    log.close()
    index = tmp_path / "topic-0" / f"{0:020d}.index"
    content = bytearray(index.read_bytes())
    content[8 + 7] += 1  # the second of five entries, which the last entry of the time index leads to
    index.write_bytes(content)
    log = bench.open(is_clean=True)
    assert produce(log).first_offset == 6
    assert offsets(read_batches(log)) == [(offset, offset) for offset in range(7)]


def test_entries_that_were_dropped_do_not_come_back_when_replacing_the_file_is_refused_first() -> None:
    files = PowerCutFiles()
    files.make_lasting_directory("/d")
    index = OffsetIndex(files, "/d/0.index", 0)
    for n in range(1, 6):
        index.append(10 * n, 100 * n)
    index.create()
    position_before(index, 50)

    def refuse(operation: str, path: str) -> None:
        if operation == "open":
            raise OSError(errno.EMFILE, "Too many open files", path)

    files.before = refuse
    index.truncate_to(25)
    index.append(22, 210)
    with pytest.raises(OSError, match="Too many"):
        index.create()
    files.before = lambda *_: None
    index.create()
    found = struct.iter_unpack(">ii", files.read("/d/0.index"))
    assert list(found) == [(10, 100), (20, 200), (22, 210)]
