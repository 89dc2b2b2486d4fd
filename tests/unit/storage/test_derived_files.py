"""Snapshots, checkpoints, epochs and properties, in Kafka's formats."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas.core.files import RealFiles
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.storage.directory.directory_properties import (
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from barnabas.storage.files import checkpoints
from barnabas.storage.files.names import (
    parse_log_directory,
    parse_segment_file,
    renamed_directory,
    renamed_suffix,
)
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache, read_leader_epochs
from barnabas.storage.log.parts.partition_metadata import read_topic_id
from barnabas.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, parse_snapshot, render_snapshot

FILES = RealFiles()

PRODUCERS = [
    ProducerEntry(
        1,
        producer_epoch=2,
        coordinator_epoch=3,
        last_timestamp=400,
        current_txn_first_offset=50,
        batches=[BatchMetadata(n, 10 + n, 0, 390 + n) for n in range(5)],
    ),
    ProducerEntry(9, producer_epoch=0, last_timestamp=7),
]


# -- producer snapshots -----------------------------------------------------------------------


def test_a_snapshot_returns_the_producers_that_were_written() -> None:
    assert parse_snapshot(render_snapshot(PRODUCERS)) == PRODUCERS
    assert parse_snapshot(render_snapshot([])) == []


def test_a_snapshot_is_kafkas_version_1_with_more_behind_it() -> None:
    content = render_snapshot(PRODUCERS)
    version, crc, count = struct.unpack_from(">hIi", content)
    assert (version, count) == (1, 2)
    assert crc == crc32c(content[6:])
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (1, 2, 4, 14, 0, 400, 3, 50)
    assert struct.unpack_from(">qhiqiqiq", content, 10 + 46) == (9, 0, -1, -1, 0, 7, -1, -1)


def test_a_snapshot_written_by_kafka_has_the_last_batch_only() -> None:
    entry = struct.pack(">qhiqiqiq", 1, 2, 4, 14, 1, 400, 3, -1)
    rest = struct.pack(">i", 1) + entry
    (found,) = parse_snapshot(struct.pack(">hI", 1, crc32c(rest)) + rest)
    assert found.batches == [BatchMetadata(4, 14, 1, 400)]
    assert found.current_txn_first_offset == -1


@pytest.mark.parametrize("damage", ["cut", "flip", "version", "empty"])
def test_a_damaged_snapshot_is_noticed(damage: str) -> None:
    content = bytearray(render_snapshot(PRODUCERS))
    if damage == "cut":
        del content[-10:]
    elif damage == "flip":
        content[20] ^= 1
    elif damage == "version":
        content[1] = 2
    else:
        content.clear()
    with pytest.raises(CorruptSnapshot):
        parse_snapshot(bytes(content))


# -- checkpoints ------------------------------------------------------------------------------


def test_a_checkpoint_is_a_version_a_count_and_lines(tmp_path: Path) -> None:
    path = str(tmp_path / checkpoints.RECOVERY_POINTS)
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b", 12): 0}
    FILES.replace(path, checkpoints.render_offsets(offsets))
    assert Path(path).read_text() == "0\n2\na 0 5\nb 12 0\n"
    assert checkpoints.read_offsets(FILES, path) == offsets
    assert not Path(path + ".tmp").exists()
    assert (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_START_OFFSETS) == (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    )


@pytest.mark.parametrize("text", ["1\n0\n", "x\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na zero 1\n"])
def test_a_damaged_checkpoint_counts_as_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINTS
    path.write_text(text)
    with pytest.raises(checkpoints.CorruptCheckpoint):
        checkpoints.parse_offsets(text.encode())
    assert checkpoints.read_offsets(FILES, str(path)) == {}


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n"])
def test_an_empty_checkpoint_is_no_error(text: str) -> None:
    assert checkpoints.parse_offsets(text.encode()) == {}


# -- leader epochs ----------------------------------------------------------------------------


def test_where_an_epoch_ends() -> None:
    cache = LeaderEpochCache([(2, 10), (4, 20), (7, 30)])
    assert cache.end_offset_for(7, 99) == (7, 99), "the current one ends where the log does"
    assert cache.end_offset_for(4, 99) == (4, 30)
    assert cache.end_offset_for(3, 99) == (2, 20), "an epoch that wrote nothing ends with the one before"
    assert cache.end_offset_for(1, 99) == (1, 10), "before the first the data is gone"
    assert cache.end_offset_for(8, 99) == (-1, -1)
    assert cache.end_offset_for(-1, 99) == (-1, -1)
    assert LeaderEpochCache([]).end_offset_for(0, 9) == (-1, -1)


def test_which_epoch_an_offset_has() -> None:
    cache = LeaderEpochCache([(2, 10), (4, 20)])
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 500)] == [-1, 2, 2, 4, 4]


def test_an_epoch_is_entered_once_and_contradictions_go() -> None:
    cache = LeaderEpochCache([])
    cache.assign(1, 0)
    cache.assign(1, 5)
    assert cache.entries == [(1, 0)]
    cache.assign(3, 9)
    cache.assign(4, 9)
    assert cache.entries == [(1, 0), (4, 9)], "an epoch without records gives way"
    cache.assign(2, 12)
    assert cache.entries == [(1, 0), (2, 12)]


def test_epochs_are_cut_at_both_ends() -> None:
    cache = LeaderEpochCache([(1, 0), (2, 10), (3, 20)])
    cache.truncate_from_end(20)
    assert cache.entries == [(1, 0), (2, 10)]
    cache.truncate_from_start(15)
    assert cache.entries == [(2, 15)]
    assert cache.latest_epoch == 2
    version = cache.version
    cache.truncate_from_start(15)
    cache.truncate_from_end(16)
    assert cache.version == version, "nothing changed, nothing to write"


def test_the_epoch_file_is_kafkas(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n5 17\n")
    cache = read_leader_epochs(FILES, str(tmp_path))
    assert cache.entries == [(1, 0), (5, 17)]
    assert cache.render() == b"0\n2\n1 0\n5 17\n"
    assert not cache.is_dirty


# -- properties -------------------------------------------------------------------------------


def test_meta_properties_of_zookeeper_mode(tmp_path: Path) -> None:
    assert read_meta_properties(FILES, str(tmp_path)) is None
    written = MetaProperties(broker_id=3, cluster_id="abc-DEF_123")
    write_meta_properties(FILES, str(tmp_path), written)
    assert read_meta_properties(FILES, str(tmp_path)) == written
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert set(lines) >= {"version=0", "broker.id=3", "cluster.id=abc-DEF_123"}


def test_meta_properties_of_kraft_mode_are_understood(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=4\nversion=1\n"
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=3q2-7wAAAAAAAAAAAAAAAA\n"
    )
    found = read_meta_properties(FILES, str(tmp_path))
    assert found is not None
    assert (found.version, found.broker_id, found.cluster_id) == (1, 4, "MkU3OEVBNTcwNTJENDM2Qg")


def test_a_topic_id_is_read_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    topic_id = Uuid.generate(random.Random(1))
    assert read_topic_id(FILES, str(tmp_path)) is None
    (tmp_path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    assert read_topic_id(FILES, str(tmp_path)) == topic_id
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    assert read_topic_id(FILES, str(tmp_path)) is None


def test_the_clean_shutdown_marker_keeps_the_broker_epoch(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert read_clean_shutdown(FILES, directory) is None
    write_clean_shutdown(FILES, directory, 42)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(FILES, directory) == 42
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert read_clean_shutdown(FILES, directory) == -1
    remove_clean_shutdown(FILES, directory)
    assert read_clean_shutdown(FILES, directory) is None


# -- names ------------------------------------------------------------------------------------


def test_directories_are_told_apart() -> None:
    assert parse_log_directory("my-topic-12") == TopicPartition("my-topic", 12)
    for name in ("__cluster_metadata-0", "topic", "a-0.0123abc-delete", "a-0.0123abc-future", "lost+found"):
        assert parse_log_directory(name) is None
    assert renamed_suffix("a-0.0123abc-delete") == "-delete"
    assert renamed_suffix("topic-delete") is None


def test_a_deleted_directory_has_a_name_that_fits() -> None:
    name = renamed_directory(TopicPartition("t" * 249, 7), "0" * 32, "-delete")
    assert len(name) <= 255
    assert renamed_suffix(name) == "-delete"


def test_segment_files_are_told_from_others() -> None:
    assert parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex")
    for name in ("42.log", "00000000000000000042.log.deleted", "partition.metadata", "remote_log_snapshot"):
        assert parse_segment_file(name) is None
