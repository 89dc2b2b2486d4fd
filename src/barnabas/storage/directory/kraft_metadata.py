"""Settings in the KRaft metadata log that Apache Kafka left in a log directory (`__cluster_metadata-0`).

The log is a sequence of records that are replayed in order; a snapshot (`<end offset>-<epoch>.checkpoint`)
replaces everything before its end offset. Of the records this module replays:

- topics with their ids and the settings of topics and brokers, which decide what may be deleted;
- the next producer id: Kafka gave out every id below it.

Access rules, quotas, users and tokens stay in the log, unread.

The settings are imported once. `note_adopted` leaves a note in the log directory. A metadata log that Kafka
has not written to since is not read again, because the settings may have changed here meanwhile.

Retention deletes records by these settings, so the result is complete or an error: a damaged batch, a gap or
a half-written snapshot raises `UnreadableMetadata`. Only a batch that a crash cut off at the end of the last
segment is skipped, because Kafka had not committed it.

Gap: the log of one node does not show how far its quorum had committed, so settings in an uncommitted tail
count as well.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.core.errors import KafkaError
from barnabas.core.files import Files
from barnabas.core.ids import Uuid
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema.fields import int8, int32, int64, string, uuid
from barnabas.protocol.schema.message import Message
from barnabas.protocol.schema.primitives import read_unsigned_varint
from barnabas.records.batch import HEADER_BYTES, RecordBatch, read_header
from barnabas.records.record import CONTROL_KEY, iterate_records
from barnabas.storage.files.names import CLUSTER_METADATA, LOG, parse_segment_file

ALL_BROKERS: Final = ""
"""Resource name of the settings of all brokers."""

ADOPTED: Final = ".kraft-metadata-adopted"
"""File with the end offset of the metadata log whose settings were imported."""

_SNAPSHOT_FILE: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SNAPSHOT_FOOTER: Final = 4
"""Type of the control record that ends a snapshot."""
_FRAME_VERSION: Final = 1


class UnreadableMetadata(Exception):
    """The metadata log is damaged or incomplete, so none of its settings can be trusted."""


class TopicRecord(Message, versions="0", flexible="0+"):
    name: str = string()
    topic_id: Uuid = uuid()


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: Uuid = uuid()


class ConfigRecord(Message, versions="0", flexible="0+"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    next_producer_id: int = int64()


@dataclass(slots=True)
class KraftMetadata:
    """State after the replayed records."""

    log_directory: str
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings by broker id; those of all brokers are under `ALL_BROKERS`."""
    next_producer_id: int = 0
    end_offset: int = 0

    def config_of(self, topic: str, topic_id: Uuid | None) -> Mapping[str, str] | None:
        """Overrides of the topic; None if Kafka had no such topic, or another one of the same name."""
        known = self.topic_ids.get(topic)
        if known is None or topic_id not in (None, known):
            return None
        return self.topic_configs.get(topic, {})


def read_kraft_metadata(files: Files, log_directory: str) -> KraftMetadata | None:
    """Replay the metadata log in `log_directory`; None if there is none.

    Raises UnreadableMetadata if it is damaged, incomplete, or was imported before and may be outdated."""
    directory = f"{log_directory}/{CLUSTER_METADATA}"
    if not files.exists(directory):
        return None
    try:
        names = [entry.name for entry in files.list(directory)]
        replay = _Replay(log_directory)
        snapshot = max(filter(_SNAPSHOT_FILE.fullmatch, names), default=None)
        if snapshot is not None:
            _replay_snapshot(files, directory, snapshot, replay)
        _replay_log(files, directory, names, replay)
        metadata = replay.settled()
        adopted_offset = _adopted_offset(files, log_directory)
    except (OSError, KafkaError, MalformedMessage) as error:
        raise UnreadableMetadata(f"{directory} cannot be read: {error}") from error
    except (IndexError, ValueError) as error:
        raise UnreadableMetadata(f"{directory} holds a record that cannot be read: {error!r}") from error
    if adopted_offset >= metadata.end_offset:
        raise UnreadableMetadata(f"the settings in {directory} were imported before and may be outdated")
    return metadata


def note_adopted(files: Files, metadata: KraftMetadata) -> None:
    """Write down that the settings up to this offset were imported."""
    files.replace(f"{metadata.log_directory}/{ADOPTED}", f"{metadata.end_offset}\n".encode())


def _adopted_offset(files: Files, log_directory: str) -> int:
    path = f"{log_directory}/{ADOPTED}"
    return int(files.read(path)) if files.exists(path) else -1


class _Replay:
    """Applies records in order. A metadata transaction (KIP-868) that is aborted or open has no effect."""

    def __init__(self, log_directory: str) -> None:
        self.state = KraftMetadata(log_directory)
        self._before_transaction: KraftMetadata | None = None
        self._handlers: Mapping[int, Callable[[int, memoryview], None]] = {
            2: self._topic,
            4: self._config,
            9: self._remove_topic,
            15: self._producer_ids,
            23: lambda _, __: self._begin(),
            24: lambda _, __: self._end(),
            25: lambda _, __: self._abort(),
        }

    def settled(self) -> KraftMetadata:
        self._abort()
        return self.state

    def apply(self, value: bytes) -> None:
        view = memoryview(value)
        frame_version, at = read_unsigned_varint(view, 0)
        if frame_version != _FRAME_VERSION:
            raise UnreadableMetadata(f"a metadata record has frame version {frame_version}")
        record_type, at = read_unsigned_varint(view, at)
        version, at = read_unsigned_varint(view, at)
        handler = self._handlers.get(record_type)
        if handler is not None:
            handler(version, view[at:])

    def _topic(self, version: int, body: memoryview) -> None:
        record, _ = TopicRecord.decoder(version)(body, 0)
        self.state.topic_ids[record.name] = record.topic_id

    def _remove_topic(self, version: int, body: memoryview) -> None:
        record, _ = RemoveTopicRecord.decoder(version)(body, 0)
        for name in [name for name, each in self.state.topic_ids.items() if each == record.topic_id]:
            del self.state.topic_ids[name]
            self.state.topic_configs.pop(name, None)

    def _config(self, version: int, body: memoryview) -> None:
        record, _ = ConfigRecord.decoder(version)(body, 0)
        if record.resource_type == ResourceType.TOPIC:
            configs = self.state.topic_configs
        elif record.resource_type == ResourceType.BROKER:
            configs = self.state.broker_configs
        else:
            return
        overrides = configs.setdefault(record.resource_name, {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value

    def _producer_ids(self, version: int, body: memoryview) -> None:
        record, _ = ProducerIdsRecord.decoder(version)(body, 0)
        self.state.next_producer_id = record.next_producer_id

    def _begin(self) -> None:
        self._before_transaction = copy.deepcopy(self.state)

    def _end(self) -> None:
        self._before_transaction = None

    def _abort(self) -> None:
        if self._before_transaction is not None:
            end_offset, self.state = self.state.end_offset, self._before_transaction
            self.state.end_offset = end_offset
            self._before_transaction = None


def _replay_snapshot(files: Files, directory: str, name: str, replay: _Replay) -> None:
    found = _SNAPSHOT_FILE.fullmatch(name)
    assert found is not None
    is_complete = False
    for batch in _batches(files.read(f"{directory}/{name}"), is_last=False):
        is_complete = batch.is_control and _is_footer(batch)
        _apply(batch, replay)
    if not is_complete:
        raise UnreadableMetadata(f"{directory}/{name} has no footer: it was not written completely")
    replay.state.end_offset = int(found[1])


def _replay_log(files: Files, directory: str, names: Sequence[str], replay: _Replay) -> None:
    segments = sorted(
        (parsed[0], name) for name in names if (parsed := parse_segment_file(name)) and parsed[1] == LOG
    )
    for number, (_, name) in enumerate(segments, 1):
        content = files.read(f"{directory}/{name}")
        for batch in _batches(content, is_last=number == len(segments)):
            if batch.next_offset <= replay.state.end_offset:
                continue  # the snapshot has it
            if batch.base_offset != replay.state.end_offset:
                raise UnreadableMetadata(
                    f"{directory}/{name} continues at offset {batch.base_offset}; the records from offset"
                    f" {replay.state.end_offset} on are missing"
                )
            _apply(batch, replay)
            replay.state.end_offset = batch.next_offset


def _batches(content: bytes, *, is_last: bool) -> Iterator[RecordBatch]:
    """Read the batches of a file and check them. Only the last file may end in a partial batch."""
    position = 0
    while position < len(content):
        left = len(content) - position
        is_cut = left < HEADER_BYTES
        if not is_cut:
            batch = read_header(content, position)
            is_cut = left < batch.size_bytes
        if is_cut:
            if is_last:
                return
            raise UnreadableMetadata(f"a file of the metadata log ends inside a batch at byte {position}")
        batch.check_crc()
        yield batch
        position += batch.size_bytes


def _apply(batch: RecordBatch, replay: _Replay) -> None:
    if batch.is_control:
        return
    for record in iterate_records(batch):
        if record.value is not None:
            replay.apply(record.value)


def _is_footer(batch: RecordBatch) -> bool:
    keys = [record.key for record in iterate_records(batch)]
    return any(
        key is not None
        and len(key) >= CONTROL_KEY.size
        and CONTROL_KEY.unpack_from(key)[1] == _SNAPSHOT_FOOTER
        for key in keys
    )
