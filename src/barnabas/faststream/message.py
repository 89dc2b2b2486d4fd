"""Message that a handler receives, its parser, and the settlement that tells `process` what became of it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from faststream.message import AckStatus, StreamMessage, decode_message

from barnabas.client.extensions.records import Record


class Settlement:
    """Outcome of a record: acknowledged, rejected or to be tried again."""

    def __init__(self) -> None:
        self.status: AckStatus | None = None
        self._settled = asyncio.Event()

    def settle(self, status: AckStatus) -> None:
        if self.status is None:
            self.status = status
            self._settled.set()

    async def wait(self) -> None:
        await self._settled.wait()


CURRENT: ContextVar[Settlement | None] = ContextVar("settlement", default=None)
"""Settlement of the record that the running task handles. FastStream's parsers take no argument for it."""


class KafkaMessage(StreamMessage[Any]):
    """`raw_message` is a `Record`, or a tuple of them in a batch."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._settlement = CURRENT.get()  # also in a parser of the application

    async def ack(self) -> None:
        await super().ack()
        self._settle()

    async def nack(self) -> None:
        await super().nack()
        self._settle()

    async def reject(self) -> None:
        await super().reject()
        self._settle()

    def _settle(self) -> None:
        if self._settlement is not None and self.committed is not None:
            self._settlement.settle(self.committed)


async def parse_record(record: Record[Any, Any]) -> KafkaMessage:
    headers = headers_of(record)
    return KafkaMessage(
        record,
        record.value or b"",
        headers=headers,
        reply_to=headers.get("reply_to", ""),
        content_type=headers.get("content-type"),
        message_id=f"{record.topic}-{record.partition}-{record.offset}",
        correlation_id=headers.get("correlation_id"),
    )


async def parse_batch(records: tuple[Record[Any, Any], ...]) -> KafkaMessage:
    first, last = records[0], records[-1]
    batch_headers = [headers_of(record) for record in records]
    return KafkaMessage(
        records,
        [record.value or b"" for record in records],
        headers=batch_headers[0],
        batch_headers=batch_headers,
        reply_to=batch_headers[0].get("reply_to", ""),
        content_type=batch_headers[0].get("content-type"),
        message_id=f"{first.topic}-{first.partition}-{first.offset}-{last.offset}",
        correlation_id=batch_headers[0].get("correlation_id"),
    )


async def decode_record(message: StreamMessage[Any]) -> Any:
    return decode_message(message)


async def decode_batch(message: StreamMessage[Any]) -> Any:
    """FastStream recognizes the decoder of batches by this name."""
    return [decode_message(await parse_record(record)) for record in message.raw_message]


def headers_of(record: Record[Any, Any]) -> dict[str, str]:
    """Headers as text; of several with one name the last."""
    return {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
