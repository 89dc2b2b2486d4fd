"""An index is sparse, and readers near the end of a log never leave its warm tail."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.files import ReadBuffer, RealFiles
from barnabas.storage.segment import sparse_index as index_module
from barnabas.storage.segment.offset_index import OffsetIndex
from tests.unit.storage.support import Bench, produce


class CountingFiles(RealFiles):
    def __init__(self) -> None:
        self.maps = 0

    def map(self, path: str) -> ReadBuffer:
        self.maps += 1
        return super().map(path)


def test_a_search_near_the_end_touches_no_page_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "TAIL_BYTES_MAX", 64 * OffsetIndex.entry.size)
    files = CountingFiles()
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0)
    for number in range(1, 1_000):
        index.append(number, 10 * number)
    assert (tmp_path / "0.index").stat().st_size > 0, "the cold entries are in the file"
    assert index.position_before(999) == 9_990
    assert index.position_before(980) == 9_800
    assert files.maps == 0
    assert index.position_before(5) == 50
    assert index.position_before(17) == 170
    assert files.maps == 1, "mapped once, for as long as nothing is added to it"


class Overwritable(RealFiles):
    """Maps are copies that a test may spoil."""

    def __init__(self) -> None:
        self.mapped = bytearray()

    def map(self, path: str) -> ReadBuffer:
        self.mapped = bytearray(super().map(path))
        return self.mapped


@pytest.mark.parametrize("how", ["spilled", "opened again"])
def test_a_search_near_the_end_of_the_file_stays_in_its_last_pages(tmp_path: Path, how: str) -> None:
    files, entries = Overwritable(), 10_000
    index = OffsetIndex(files, str(tmp_path / "0.index"), 0)
    for number in range(1, entries + 1):
        index.append(number, 10 * number)
    index.spill()
    if how == "opened again":
        index = OffsetIndex(files, index.path, 0, file_bytes=8 * entries)
    assert [index.position_before(offset) for offset in (1, 4_000, 9_999)] == [10, 40_000, 99_990]
    cold_bytes = 8 * entries - index_module.WARM_BYTES
    files.mapped[:cold_bytes] = b"\x7f" * cold_bytes
    first_warm = cold_bytes // 8 + 1
    for offset in (first_warm, first_warm + 100, entries, entries + 5):
        assert index.position_before(offset) == 10 * min(offset, entries)


def test_an_index_has_one_entry_for_so_many_bytes(tmp_path: Path) -> None:
    log = Bench(str(tmp_path), index_interval_bytes=4_096).open()
    sizes = [produce(log, size=1_000).size_bytes for _ in range(100)]
    entries = len(log.segments.active.offset_index)
    assert sum(sizes) // (4_096 + sizes[0]) <= entries <= sum(sizes) // 4_096
