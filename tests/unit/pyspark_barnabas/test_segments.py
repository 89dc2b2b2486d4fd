"""Closed segments when they are no longer what the manifest says of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.records.builder import build_batch
from pyspark_barnabas.readers import segments
from pyspark_barnabas.readers.fetch import DataLoss
from pyspark_barnabas.readers.segment_stream import SegmentStreamReader
from pyspark_barnabas.readers.segments import SegmentPartition, SegmentRange, SegmentReader, pack
from pyspark_barnabas.shared.options import OptionError, Options

SEGMENT_RECORDS = 10


class Exported:
    """A partition of some segments with ten records each, and its manifest."""

    def __init__(self, home: Path, segments: int) -> None:
        self.home = home
        rows = [self._segment(number * SEGMENT_RECORDS) for number in range(segments)]
        self.row: dict[str, Any] = {
            "topic": "events",
            "partition": 0,
            "log_start_offset": 0,
            "last_stable_offset": 1_000,
            "segments": rows,
            "aborted": [],
        }
        self.write()

    def _segment(self, base_offset: int) -> dict[str, Any]:
        file = self.home / f"{base_offset:020}.log"
        records = [(None, b"%d" % number, (), 0) for number in range(SEGMENT_RECORDS)]
        file.write_bytes(build_batch(records, base_offset=base_offset))
        return {
            "file": str(file),
            "base_offset": base_offset,
            "end_offset": base_offset + SEGMENT_RECORDS,
            "size_bytes": file.stat().st_size,
            "max_timestamp": None,
        }

    def write(self) -> None:
        manifest = {"version": 1, "partitions": [self.row]}
        (self.home / "segments-manifest.json").write_text(json.dumps(manifest))

    def options(self, **more: str) -> Options:
        given = {} if "assign" in more else {"subscribe": "events"}
        return Options({"manifest": str(self.home), **given, **more})

    def stream(self, **more: str) -> SegmentStreamReader:
        return SegmentStreamReader(self.options(**more))


def offsets_of(reader: Any, partitions: list[Any]) -> list[int]:
    return [
        offset
        for partition in partitions
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]


def test_a_segment_that_was_compacted_after_the_export_is_read_to_its_new_end(tmp_path: Path) -> None:
    exported = Exported(tmp_path, 2)
    file = Path(exported.row["segments"][0]["file"])
    before_bytes = file.stat().st_size
    file.write_bytes(build_batch([(None, b"kept", (), 0)], base_offset=7))
    assert file.stat().st_size < before_bytes
    reader = SegmentReader(exported.options())
    assert offsets_of(reader, reader.partitions()) == [7, *range(10, 20)]


def test_offsets_that_another_manifest_does_not_reach_are_not_passed_over(tmp_path: Path) -> None:
    exported = Exported(tmp_path, 3)
    reader = exported.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"events": {"0": 30}}
    assert offsets_of(reader, reader.partitions(start, end)) == list(range(30))
    del exported.row["segments"][2]  # as of a replica that has closed its segments elsewhere
    exported.write()
    with pytest.raises(DataLoss, match="ends at 20 of events-0, before offset 30"):
        reader.partitions(start, end)
    lenient = exported.stream(startingOffsets="earliest", failOnDataLoss="false")
    assert offsets_of(lenient, lenient.partitions(start, end)) == list(range(20))


@pytest.mark.parametrize(
    ("asked", "missing"),
    [({"subscribe": "events,evnets"}, "evnets"), ({"assign": '{"events": [0, 1]}'}, "events-1")],
)
def test_what_the_manifest_does_not_speak_of_is_named(
    tmp_path: Path, asked: dict[str, str], missing: str
) -> None:
    exported = Exported(tmp_path, 1)
    with pytest.raises(OptionError, match=f"does not list {missing};"):
        SegmentReader(exported.options(**asked)).partitions()
    with pytest.raises(OptionError, match=f"does not list {missing};"):
        exported.stream(**asked).initialOffset()


def test_a_stream_from_the_latest_begins_where_the_files_end(tmp_path: Path) -> None:
    exported = Exported(tmp_path, 2)
    assert exported.stream(startingOffsets="latest").initialOffset() == {"events": {"0": 20}}


def test_an_index_with_a_changed_bit_leads_past_no_record(tmp_path: Path) -> None:
    exported = Exported(tmp_path, 1)
    (row,) = exported.row["segments"]
    file = Path(row["file"])
    batches = [build_batch([(None, bytes(30), (), 0)], base_offset=offset) for offset in range(10)]
    file.write_bytes(b"".join(batches))
    row["size_bytes"] = file.stat().st_size
    exported.write()
    positions = [sum(map(len, batches[:offset])) for offset in range(10)]
    content = b"".join(struct.pack(">ii", offset, positions[offset]) for offset in range(1, 10, 2))
    reader = SegmentReader(exported.options(startingOffsets='{"events": {"0": 6}}'))
    index = file.with_suffix(".index")
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        index.write_bytes(changed)
        assert offsets_of(reader, reader.partitions()) == [6, 7, 8, 9], f"bit {bit}"


def tasks_of(
    sizes_mb: list[int], partitions: list[int], *, min_tasks: int | None = None, keeps_order: bool = False
) -> list[list[int]]:
    """Numbers of the segments of each task."""
    ranges = [
        SegmentRange("events", partition, f"{at}.log", at, size << 20, at, at + 1, ())
        for at, (size, partition) in enumerate(zip(sizes_mb, partitions, strict=True))
    ]
    tasks = pack(ranges, min_tasks=min_tasks, keeps_order=keeps_order)
    return [[each.start for each in task.ranges] for task in tasks if isinstance(task, SegmentPartition)]


@pytest.mark.parametrize(
    ("sizes_mb", "least", "tasks"),
    [
        ([60] * 5, None, [[0, 1], [2, 3], [4]]),
        ([16] * 6, 2, [[0, 1, 2], [3, 4, 5]]),
        ([16] * 5, 2, [[0, 1, 2], [3, 4]]),
        ([1_024, 1_024], 8, [[0], [1]]),
        ([1] * 6, 8, [[0, 1, 2, 3], [4, 5]]),
        ([], 2, []),
    ],
)
def test_as_many_tasks_as_are_asked_for_share_the_segments(
    sizes_mb: list[int], least: int | None, tasks: list[list[int]]
) -> None:
    assert tasks_of(sizes_mb, [0] * len(sizes_mb), min_tasks=least) == tasks


def test_a_partition_whose_order_counts_has_one_task() -> None:
    sizes_mb, partitions = [100, 100, 100, 10, 10], [0, 0, 0, 1, 2]
    assert tasks_of(sizes_mb, partitions, keeps_order=True) == [[0, 1, 2], [3, 4]]
    assert tasks_of(sizes_mb, partitions) == [[0], [1], [2, 3, 4]]


def test_a_stream_packs_its_segments_as_its_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "TASK_BYTES", 1)
    exported = Exported(tmp_path, 3)
    tasks = [
        len(reader.partitions(start, {"events": {"0": 30}}))
        for reader in (exported.stream(), exported.stream(keepOrder="true"))
        for start in [{"events": {"0": 0}}]
    ]
    assert tasks == [3, 1]
