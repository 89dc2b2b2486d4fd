"""Bytes per read when TLS records are short."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from barnabas.network.transport.tls_transport import RECORDS_AT_ONCE_MAX, TlsTransport


class Records:
    """Reads of OpenSSL: one TLS record each."""

    def __init__(self, *records: bytes) -> None:
        self.left = list(records)

    def fileno(self) -> int:
        return -1

    def pending(self) -> int:
        return 0

    def recv_into(self, buffer: memoryview) -> int:
        if not self.left:
            raise ssl.SSLWantReadError
        record = self.left.pop(0)
        buffer[: len(record)] = record
        return len(record)


def transport(records: Records) -> TlsTransport:
    return TlsTransport(cast("Any", records), cast("asyncio.AbstractEventLoop", None))


def test_in_the_middle_of_a_frame_all_short_records_are_taken() -> None:
    """As librdkafka sends them, one for each of its own."""
    records, buffer = Records(b"ab", b"cd", b"e"), memoryview(bytearray(16))
    assert transport(records).recv_into(buffer, 10) == 5
    assert bytes(buffer[:5]) == b"abcde"
    assert records.left == []


def test_a_short_record_is_taken_for_all_there_is_otherwise() -> None:
    records = Records(b"ab", b"cd")
    assert transport(records).recv_into(memoryview(bytearray(16))) == 2
    assert records.left == [b"cd"]


def test_records_of_one_byte_do_not_keep_others_waiting() -> None:
    records = Records(*[b"a"] * 1_000)
    assert transport(records).recv_into(memoryview(bytearray(2_000)), 2_000) == RECORDS_AT_ONCE_MAX
    assert len(records.left) == 1_000 - RECORDS_AT_ONCE_MAX
