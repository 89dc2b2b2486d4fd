"""The manifest of closed segments."""

from __future__ import annotations

from pathlib import Path

from barnabas.core.files import RealFiles
from barnabas.core.ids import TopicPartition
from barnabas.storage.manifest import Bounds, build_manifest
from barnabas.storage.segment.transaction_index import ENTRY


def partition_with_segments(directory: Path, *bases: int) -> Path:
    directory.mkdir()
    for base in bases:
        (directory / f"{base:020d}.log").write_bytes(b"x" * 100)
        (directory / f"{base:020d}.timeindex").write_bytes(
            (1_000 + base).to_bytes(8, "big") + (3).to_bytes(4, "big")
        )
    return directory


def test_only_closed_segments_within_the_bounds_are_named(tmp_path: Path) -> None:
    directory = partition_with_segments(tmp_path / "t-0", 0, 10, 20, 30, 40)
    (directory / f"{30:020d}.txnindex").write_bytes(ENTRY.pack(0, 7, 12, 33, 34))
    partition_with_segments(tmp_path / "other-0", 0, 10)
    place = TopicPartition("t", 0)
    (found,) = build_manifest(RealFiles(), str(tmp_path), {place: Bounds(10, 28)})["partitions"]
    assert [(each["base_offset"], each["end_offset"]) for each in found["segments"]] == [(10, 20), (20, 30)]
    assert [each["max_timestamp"] for each in found["segments"]] == [1_010, 1_020]
    assert found["aborted"] == [[7, 12, 33]]
    assert (found["log_start_offset"], found["last_stable_offset"]) == (10, 28)


def test_an_active_segment_alone_is_nothing_to_read(tmp_path: Path) -> None:
    partition_with_segments(tmp_path / "t-0", 0)
    (found,) = build_manifest(RealFiles(), str(tmp_path), {TopicPartition("t", 0): Bounds(0, 5)})[
        "partitions"
    ]
    assert found["segments"] == []
