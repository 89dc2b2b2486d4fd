"""Apache Kafka's metadata log, read back: all of it, or nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.core.files import RealFiles
from barnabas.core.ids import Uuid
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.schema.message import Message
from barnabas.protocol.schema.primitives import unsigned_varint
from barnabas.records.builder import BatchBuilder
from barnabas.storage.directory.kraft_metadata import (
    ConfigRecord,
    KraftMetadata,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnreadableMetadata,
    note_adopted,
    read_kraft_metadata,
)

FIRST, SECOND = (Uuid.generate(random.Random(seed)) for seed in (1, 2))
TYPES = {TopicRecord: 2, ConfigRecord: 4, RemoveTopicRecord: 9, ProducerIdsRecord: 15}
BEGIN, END, ABORT, UNKNOWN = (bytes((1, kind, 0, 0)) for kind in (23, 24, 25, 99))
FOOTER_KEY, FOOTER_VALUE = b"\0\0\0\4", b"\0\0"


def topic(name: str, topic_id: Uuid = FIRST) -> bytes:
    return framed(TopicRecord(name=name, topic_id=topic_id))


def config(name: str, key: str, value: str | None, kind: int = ResourceType.TOPIC) -> bytes:
    return framed(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))


def framed(record: Message) -> bytes:
    head = b"\1" + unsigned_varint(TYPES[type(record)]) + b"\0"
    return head + record.encode(0)


class Kafka:
    """A metadata log in the making."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path / "__cluster_metadata-0"
        self.home.mkdir()
        self.end_offset = 0
        self.segment = self.home / f"{0:020d}.log"

    def write(self, *records: bytes) -> None:
        with self.segment.open("ab") as log:
            log.write(self._batch(records))
        self.end_offset += len(records)

    def roll(self) -> None:
        self.segment = self.home / f"{self.end_offset:020d}.log"

    def snapshot(self, *records: bytes, is_complete: bool = True) -> Path:
        content = self._batch(records)
        if is_complete:
            footer = BatchBuilder(is_control=True)
            footer.append(FOOTER_KEY, FOOTER_VALUE, (), 0)
            content += bytes(footer.build())
        path = self.home / f"{self.end_offset:020d}-{1:010d}.checkpoint"
        path.write_bytes(content)
        return path

    def _batch(self, records: Sequence[bytes]) -> bytes:
        builder = BatchBuilder(base_offset=self.end_offset)
        for record in records:
            builder.append(None, record, (), 0)
        return bytes(builder.build())

    def read(self) -> KraftMetadata:
        found = read_kraft_metadata(RealFiles(), str(self.path))
        assert found is not None
        return found


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    return Kafka(tmp_path)


def test_a_directory_without_a_metadata_log_has_no_settings(tmp_path: Path) -> None:
    assert read_kraft_metadata(RealFiles(), str(tmp_path)) is None


def test_records_are_replayed_in_order(kafka: Kafka) -> None:
    kafka.write(topic("t"), config("t", "retention.ms", "5"), config("t", "segment.ms", "7"), UNKNOWN)
    kafka.write(config("t", "retention.ms", "-1"), config("t", "segment.ms", None))
    kafka.write(
        config("", "log.retention.ms", "9", ResourceType.BROKER),
        framed(ProducerIdsRecord(next_producer_id=3_000)),
    )
    found = kafka.read()
    assert found.config_of("t", FIRST) == {"retention.ms": "-1"}
    assert found.config_of("t", None) == {"retention.ms": "-1"}
    assert found.config_of("t", SECOND) is None
    assert found.config_of("u", None) is None
    assert found.broker_configs == {"": {"log.retention.ms": "9"}}
    assert (found.next_producer_id, found.end_offset) == (3_000, 8)


def test_a_topic_made_again_has_none_of_the_settings_before(kafka: Kafka) -> None:
    kafka.write(topic("t"), config("t", "retention.ms", "5"), framed(RemoveTopicRecord(topic_id=FIRST)))
    kafka.write(topic("t", SECOND))
    assert kafka.read().config_of("t", SECOND) == {}


def test_a_snapshot_replaces_all_records_before_it(kafka: Kafka) -> None:
    kafka.write(topic("old"), config("old", "retention.ms", "5"))
    kafka.snapshot(topic("t"), config("t", "retention.ms", "6"))
    kafka.roll()
    kafka.write(config("t", "segment.ms", "7"))
    assert kafka.read().topic_configs == {"t": {"retention.ms": "6", "segment.ms": "7"}}
    (kafka.home / f"{0:020d}.log").unlink()
    assert kafka.read().config_of("t", FIRST) == {"retention.ms": "6", "segment.ms": "7"}


@pytest.mark.parametrize("end", [ABORT, None])
def test_a_metadata_transaction_that_did_not_commit_has_no_effect(kafka: Kafka, end: bytes | None) -> None:
    kafka.write(
        topic("t"), BEGIN, config("t", "retention.ms", "5"), END, BEGIN, config("t", "retention.ms", "6")
    )
    if end is not None:
        kafka.write(end)
    assert kafka.read().config_of("t", FIRST) == {"retention.ms": "5"}


def test_a_batch_that_a_crash_cut_off_is_passed_over(kafka: Kafka) -> None:
    kafka.write(topic("t"))
    kafka.write(config("t", "retention.ms", "5"))
    whole = kafka.segment.read_bytes()
    kafka.segment.write_bytes(whole[:-3])
    assert kafka.read().config_of("t", FIRST) == {}


def test_every_wrong_bit_is_noticed(kafka: Kafka) -> None:
    kafka.write(topic("t"), config("t", "retention.ms", "5"))
    kafka.roll()
    kafka.write(topic("u"))
    first = kafka.home / f"{0:020d}.log"
    whole = first.read_bytes()
    for place in range(len(whole)):
        if 12 <= place < 16:
            continue  # the leader epoch, which says nothing about settings
        first.write_bytes(whole[:place] + bytes((whole[place] ^ 4,)) + whole[place + 1 :])
        with pytest.raises(UnreadableMetadata):
            kafka.read()


def test_a_missing_segment_is_noticed(kafka: Kafka) -> None:
    kafka.write(topic("t"), config("t", "retention.ms", "5"))
    kafka.roll()
    kafka.write(topic("u"))
    (kafka.home / f"{0:020d}.log").unlink()
    with pytest.raises(UnreadableMetadata, match="the records from offset 0 on are missing"):
        kafka.read()


def test_half_a_snapshot_is_noticed(kafka: Kafka) -> None:
    kafka.write(topic("t"))
    kafka.snapshot(topic("t"), is_complete=False)
    with pytest.raises(UnreadableMetadata, match="has no footer"):
        kafka.read()


def test_settings_are_taken_over_once(kafka: Kafka) -> None:
    kafka.write(topic("t"), config("t", "retention.ms", "5"))
    note_adopted(RealFiles(), kafka.read())
    with pytest.raises(UnreadableMetadata, match="imported before"):
        kafka.read()
    kafka.write(config("t", "retention.ms", "6"))
    assert kafka.read().config_of("t", FIRST) == {"retention.ms": "6"}
