"""Dump of a log's files as text, in the format of Apache Kafka's `kafka-dump-log`.

Damage that Kafka's tool reports (an index that does not match its log, gaps between offsets) comes as the
last lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from barnabas.core.errors import InvalidRecord, KafkaError
from barnabas.core.files import DataFile, RealFiles
from barnabas.records.batch import NO_SEQUENCE, RecordBatch
from barnabas.records.record import CONTROL_KEY, Record, end_transaction_marker, iterate_records
from barnabas.storage.directory.directory_properties import META_PROPERTIES
from barnabas.storage.files import names
from barnabas.storage.files.checkpoints import CorruptCheckpoint, parse
from barnabas.storage.files.failures import GarbledLog
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, parse_snapshot
from barnabas.storage.segment.batch_scan import Header, find_batch, iterate_headers
from barnabas.storage.segment.offset_index import OffsetIndex
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import VERSION, parse_transaction_index


def dump_file(path: Path, *, print_data: bool, deep: bool) -> Iterator[str]:
    """Dump one file as lines. Raises ValueError for a file that does not belong to a log."""
    yield f"Dumping {path}"
    found = names.parse_segment_file(path.name)
    if found is None:
        yield from _dump_small(path)
        return
    base_offset, suffix = found
    if suffix == names.LOG:
        yield f"Log starting offset: {base_offset}"
        yield from _dump_log(path, print_data=print_data, deep=deep)
    elif suffix == names.OFFSET_INDEX:
        yield from _dump_offset_index(path, base_offset)
    elif suffix == names.TIME_INDEX:
        yield from _dump_time_index(path, base_offset)
    elif suffix == names.TRANSACTION_INDEX:
        yield from _dump_transaction_index(path)
    elif suffix == names.TRANSACTION_INDEX_CHECKSUM:
        yield f"crc: {path.read_bytes().hex()}"
    elif suffix == names.PRODUCER_SNAPSHOT:
        yield from _dump_snapshot(path)


def _dump_small(path: Path) -> Iterator[str]:
    """Dump a checkpoint or a properties file. Both are text; a checkpoint is also checked."""
    if path.name in (META_PROPERTIES, names.PARTITION_METADATA):
        yield from path.read_text().splitlines()
        return
    if path.name != names.LEADER_EPOCHS and not path.name.endswith("-checkpoint"):
        raise ValueError("not a file of a log")
    try:
        entries = parse(path.read_bytes())
    except CorruptCheckpoint as error:
        raise ValueError(str(error)) from None
    if path.name == names.LEADER_EPOCHS:
        yield from (f"epoch: {words[0]} startOffset: {words[-1]}" for words in entries)
    else:
        yield from (f"topic: {words[0]} partition: {words[1]} offset: {words[-1]}" for words in entries)


# --- log ---


def _dump_log(path: Path, *, print_data: bool, deep: bool) -> Iterator[str]:
    file, end = _open(path)
    last_offset = -1
    gaps = []
    position = 0
    try:
        for header in iterate_headers(file, 0, end):
            position = header.position + header.size_bytes
            if header.magic != 2:
                yield _legacy_line(header)
                continue
            batch = RecordBatch(file.read_at(header.position, header.size_bytes))
            yield batch_line(batch, header.position)
            for record in iterate_records(batch) if deep else ():
                yield record_line(batch, record, print_data=print_data)
                if last_offset not in (-1, record.offset - 1):
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
    except (GarbledLog, KafkaError) as error:
        yield f"Found invalid messages at byte offset {position}: {error}"
    if position < end:
        yield f"Found {end - position} invalid bytes at the end of {path.name}"
    if gaps:
        yield f"Non-consecutive offsets in {path}"
        yield from (f"  {first} is followed by {second}" for first, second in gaps)


def batch_line(batch: RecordBatch, position: int) -> str:
    """Line of one batch, as `kafka-dump-log` prints it."""
    horizon = f"OptionalLong[{batch.base_timestamp}]" if batch.has_delete_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
        f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_lower(batch.is_transactional)} "
        f"isControl: {_lower(batch.is_control)} deleteHorizonMs: {horizon} position: {position} "
        f"{_time_name(batch)}: {batch.max_timestamp} size: {batch.size_bytes} magic: {batch.magic} "
        f"compresscodec: {batch.codec.name.lower()} crc: {batch.crc} isvalid: {_lower(batch.is_valid_crc)}"
    )


def record_line(batch: RecordBatch, record: Record, *, print_data: bool) -> str:
    """Line of one record below its batch."""
    sequence = batch.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = (sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
    keys = ",".join(key for key, _ in record.headers)
    line = (
        f"| offset: {record.offset} {_time_name(batch)}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{keys}]"
    )
    if batch.is_control:
        return line + _control(record)
    if print_data and record.key is not None:
        line += f" key: {record.key.decode(errors='replace')}"
    if print_data and record.value is not None:
        line += f" payload: {record.value.decode(errors='replace')}"
    return line


def _control(record: Record) -> str:
    marker = end_transaction_marker(record)
    if marker is not None:
        kind = "COMMIT" if marker.is_commit else "ABORT"
        return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise InvalidRecord("A control record has no type")
    return f" controlType: {CONTROL_KEY.unpack_from(record.key)[1]}"


def _legacy_line(header: Header) -> str:
    return (
        f"offset: {header.last_offset} position: {header.position} CreateTime: {header.max_timestamp} "
        f"size: {header.size_bytes} magic: {header.magic}"
    )


# --- derived files ---


def _dump_offset_index(path: Path, base_offset: int) -> Iterator[str]:
    content = path.read_bytes()
    if len(content) < OffsetIndex.entry.size:
        yield f"{path} is empty."
        return
    file, end = _open(path.with_suffix(names.LOG))
    mismatches = []
    for number, (relative, position) in enumerate(_entries(OffsetIndex, content)):
        if number and not relative:
            return  # the rest of the file was allocated in advance and never written
        offset = base_offset + relative
        batch = _header_at(file, position, end)
        if batch is None or batch.last_offset != offset:
            mismatches.append(f"  Index offset: {offset}, log offset: {batch.last_offset if batch else -1}")
        yield f"offset: {offset} position: {position}"
    if mismatches:
        yield f"Mismatches in :{path}"
        yield from mismatches


def _dump_time_index(path: Path, base_offset: int) -> Iterator[str]:
    file, end = _open(path.with_suffix(names.LOG))
    mismatches = []
    previous = -1
    for number, (timestamp, relative) in enumerate(_entries(TimeIndex, path.read_bytes())):
        if number and not relative:
            return
        offset = base_offset + relative
        try:
            batch = find_batch(file, 0, end, offset)
        except GarbledLog:
            batch = None
        if batch is None or batch.last_offset != offset:
            mismatches.append(
                f"  Indexed offset: {offset}, found log offset: {batch.last_offset if batch else -1}"
            )
        elif batch.max_timestamp != timestamp:
            mismatches.append(f"  Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}")
        if timestamp <= previous:
            mismatches.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp
    if mismatches:
        yield f"Found timestamp mismatch in :{path}"
        yield from mismatches


def _dump_transaction_index(path: Path) -> Iterator[str]:
    try:
        entries = parse_transaction_index(path.read_bytes(), path.name)
    except CorruptIndex as error:
        raise ValueError(str(error)) from None
    for entry in entries:
        yield (
            f"version: {VERSION} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def _dump_snapshot(path: Path) -> Iterator[str]:
    try:
        entries = parse_snapshot(path.read_bytes())
    except CorruptSnapshot as error:
        raise ValueError(str(error)) from None
    for entry in entries:
        first = entry.current_txn_first_offset
        txn_first_offset = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {txn_first_offset} "
            f"lastTimestamp: {entry.last_timestamp} "
        )
        if entry.batches:
            batch = entry.batches[-1]
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                f"timestamp: {batch.timestamp}"
            )
        yield line


def _open(path: Path) -> tuple[DataFile, int]:
    return RealFiles().open(str(path)), path.stat().st_size


def _entries(kind: type[OffsetIndex | TimeIndex], content: bytes) -> Iterator[tuple[int, int]]:
    whole = len(content) // kind.entry.size * kind.entry.size
    yield from kind.entry.iter_unpack(content[:whole])


def _header_at(file: DataFile, position: int, end: int) -> Header | None:
    try:
        return next(iterate_headers(file, position, end), None)
    except GarbledLog:
        return None


def _time_name(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _lower(value: bool) -> str:
    return "true" if value else "false"
