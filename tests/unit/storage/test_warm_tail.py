"""An index is sparse, and readers near the end of a log never leave its warm tail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.core.files import DataFile, RealFile, RealFiles
from barnabas.storage.segment import sparse_index as index_module
from barnabas.storage.segment.offset_index import OffsetIndex
from tests.unit.storage.support import Bench, position_before, produce


class ReadingFile(RealFile):
    reads: list[tuple[int, int]]

    def read_at(self, position: int, length: int) -> bytes:
        self.reads.append((position, length))
        return super().read_at(position, length)


class CountingFiles(RealFiles):
    """Notes which parts of files are read."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def open(self, path: str, *, create: bool = False) -> DataFile:
        file = ReadingFile(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0)))
        file.reads = self.reads
        return file


def test_a_search_near_the_end_touches_no_page_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "TAIL_BYTES_MAX", 64 * OffsetIndex.entry.size)
    files = CountingFiles()
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0)
    for number in range(1, 1_000):
        index.append(number, 10 * number)
    assert (tmp_path / "0.index").stat().st_size > 0, "the cold entries are in the file"
    assert position_before(index, 999) == 9_990
    assert position_before(index, 980) == 9_800
    assert files.reads == []
    assert position_before(index, 5) == 50
    reads = len(files.reads)
    assert position_before(index, 17) == 170
    assert len(files.reads) == reads, "read once, for as long as nothing is added to it"


@pytest.mark.parametrize("how", ["spilled", "opened again"])
def test_a_search_near_the_end_of_the_file_stays_in_its_last_pages(tmp_path: Path, how: str) -> None:
    files, entries = CountingFiles(), 10_000
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0)
    for number in range(1, entries + 1):
        index.append(number, 10 * number)
    index.spill()
    if how == "opened again":
        index = OffsetIndex(files, index.path, 0, file_bytes=8 * entries)
    files.reads.clear()
    cold_bytes = 8 * entries - index_module.WARM_BYTES
    first_warm = cold_bytes // 8 + 1
    for offset in (first_warm, first_warm + 100, entries, entries + 5):
        assert position_before(index, offset) == 10 * min(offset, entries)
    assert files.reads == [(cold_bytes, index_module.WARM_BYTES), (0, 8)]


@pytest.mark.parametrize("entries", [1, 2, 1_023, 1_024, 1_025, 1_535, 1_536, 1_537, 5_000])
def test_every_entry_is_found_wherever_the_pages_end(tmp_path: Path, entries: int) -> None:
    files = CountingFiles()
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0)
    for number in range(1, entries + 1):
        index.append(2 * number, 10 * number)
    index.spill()
    assert [position_before(index, offset) for offset in range(2 * entries + 3)] == [
        10 * min(offset // 2, entries) for offset in range(2 * entries + 3)
    ]
    assert [index.at(slot) for slot in range(entries)] == [(2 * n, 10 * n) for n in range(1, entries + 1)]
    assert len(files.reads) < 20 + 3 * (8 * entries // index_module.PAGE_BYTES) * 12, "a page at a time"


def test_an_index_has_one_entry_for_so_many_bytes(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), index_interval_bytes=4_096).open()
    sizes = [produce(log, size=1_000).size_bytes for _ in range(100)]
    entries = len(log.segments.active.offset_index)
    assert sum(sizes) // (4_096 + sizes[0]) <= entries <= sum(sizes) // 4_096
