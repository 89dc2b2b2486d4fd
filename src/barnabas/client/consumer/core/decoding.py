"""Records of a batch for the application: one tight loop over the fields.

`barnabas.records.record` is the oracle of the tests. This loop differs from it only in speed. It copies the
payload once, reads varints of one byte in place, and skips records below the position before it copies
anything of them.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.extensions.records import Record
from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import RecordBatch
from barnabas.records.record import HEADER_KEY_ERRORS, Header, inflate_payload
from barnabas.records.varint import read_varint, read_varlong, wrap_int64

_new = tuple.__new__


def decode_records(  # noqa: C901, PLR0912, PLR0915 - one loop, few calls
    batch: RecordBatch, topic: str, partition: int, first_offset: int
) -> list[Record[Any, Any]]:
    """Records of a batch from `first_offset` on. Malformed records raise InvalidRecord."""
    payload = bytes(inflate_payload(batch))
    size = len(payload)
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    kind = 0 if append_time is None else 1
    epoch = batch.leader_epoch
    found: list[Record[Any, Any]] = []
    append = found.append
    position = 0
    try:
        for _ in range(batch.record_count):
            byte = payload[position]
            if byte < 0x80 and not byte & 1:
                length, at = byte >> 1, position + 1
            else:
                length, at = read_varint(payload, position)
            position = at + length
            if length < 0 or position > size:
                raise InvalidRecord("A record is longer than what is left of its batch")
            at += 1
            byte = payload[at]
            if byte < 0x80:
                delta, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                delta, at = read_varlong(payload, at)
            byte = payload[at]
            if byte < 0x80:
                offset, at = base_offset + ((byte >> 1) ^ -(byte & 1)), at + 1
            else:
                offset, at = read_varint(payload, at)
                offset += base_offset
            if offset < first_offset:
                continue
            byte = payload[at]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                length, at = read_varint(payload, at)
            if length < 0:
                key = None
            else:
                key = payload[at : at + length]
                at += length
            byte = payload[at]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                length, at = read_varint(payload, at)
            if length < 0:
                value = None
            else:
                value = payload[at : at + length]
                at += length
            count, at = (0, at + 1) if payload[at] == 0 else read_varint(payload, at)
            headers: tuple[Header, ...] = ()
            if count:
                headers, at = _headers(payload, at, position, count)
            if at != position:
                raise InvalidRecord("A record's fields do not fill its length")
            timestamp = append_time
            if timestamp is None:
                timestamp = wrap_int64(base_timestamp + delta)
            fields = (topic, partition, offset, timestamp, key, value, headers, kind, epoch)
            append(_new(Record, fields))
    except IndexError:
        raise InvalidRecord("A batch holds fewer records than it says") from None
    if position != size:
        raise InvalidRecord("A batch holds more bytes than its records")
    return found


def _headers(payload: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= end - at:
        raise InvalidRecord(f"A record cannot have {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        length, at = read_varint(payload, at)
        if length < 0:
            raise InvalidRecord("A record header has no key")
        key = payload[at : at + length].decode(errors=HEADER_KEY_ERRORS)
        at += length
        length, at = read_varint(payload, at)
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, payload[at : at + length]))
            at += length
        if at > end:
            raise InvalidRecord("A header runs past the end of its record")
    return tuple(headers), at
