"""Writing of a command's records: sends them, counts those that are in the topic, and announces waits.

With transactions a record counts when its transaction is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.cli.support.exit_codes import Failure, failure_for
from barnabas.cli.support.progress import AGAIN_S, NOTICE_AFTER_S, Stages
from barnabas.client.extensions.records import ProducerRecord
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.producer import Producer
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError

CLOSE_TIMEOUT_MS = 2_000
"""After a failure or Ctrl-C nothing more is waited for than the abort of a transaction."""
LOOK_S = 1.0


class RecordWriter:
    def __init__(
        self, producer: Producer, *, transaction_records: int | None = None, clock: Clock | None = None
    ) -> None:
        """`transaction_records` is the size of a transaction, 0 for one of everything, None for none."""
        self._producer = producer
        self._transaction_records = transaction_records
        self._clock = clock or SystemClock()
        self._sent = self._acknowledged = self._committed = 0
        self._in_transaction = 0
        self._is_open = False
        self._error: Exception | None = None
        self._moved_ms = self._clock.monotonic_ms()

    @property
    def written(self) -> int:
        """Records that are in the topic for good."""
        return self._acknowledged if self._transaction_records is None else self._committed

    @property
    def has_sent(self) -> bool:
        return self._sent > 0

    async def send(self, record: ProducerRecord) -> None:
        if self._error is not None:
            raise self._error
        if self._transaction_records is not None and not self._is_open:
            await self._producer.begin_transaction()
            self._is_open = True
        delivery = await self._producer.send(
            record.topic,
            record.value,
            key=record.key,
            partition=record.partition,
            headers=record.headers or None,
            timestamp_ms=record.timestamp_ms,
        )
        if self._sent == self._acknowledged:
            self._moved_ms = self._clock.monotonic_ms()
        self._sent += 1
        delivery.add_done_callback(self._done)
        self._in_transaction += 1
        if self._is_open and self._in_transaction == self._transaction_records:
            await self._commit()

    async def finish(self) -> None:
        """Wait for the acknowledgements, and commit the open transaction."""
        await self._flush()
        if self._is_open:
            await self._commit()

    async def stop(self) -> None:
        """Wait for the acknowledgements after a faulty line, and abort the open transaction."""
        if self._is_open:
            await self._producer.abort_transaction()
            self._is_open = False
        else:
            await self._flush()

    async def _commit(self) -> None:
        await self._producer.commit_transaction()
        self._is_open = False
        self._committed += self._in_transaction
        self._in_transaction = 0

    async def _flush(self) -> None:
        await self._producer.flush()
        await asyncio.sleep(0)  # the outcomes of the last batches are handed over in this turn
        if self._error is not None:
            raise self._error

    def _done(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self._acknowledged += 1
        elif self._error is None:
            self._error = error
        self._moved_ms = self._clock.monotonic_ms()

    async def watch(self) -> None:
        """Announce waits for acknowledgements, until cancelled."""
        stages, next_s = Stages("barnabas"), NOTICE_AFTER_S
        while True:
            await asyncio.sleep(LOOK_S)
            waiting = self._sent - self._acknowledged
            waited_s = (self._clock.monotonic_ms() - self._moved_ms) / 1_000
            if not waiting or waited_s < NOTICE_AFTER_S:
                next_s = NOTICE_AFTER_S
            elif waited_s >= next_s:
                stages.say(f"waiting for the acknowledgement of {counted(waiting)} … {waited_s:.0f} s")
                next_s = waited_s + AGAIN_S - LOOK_S


@asynccontextmanager
async def writing(
    producer: Producer, *, transaction_records: int | None = None
) -> AsyncIterator[RecordWriter]:
    """A writer for the block. A failure says how many records were written before it."""
    writer = RecordWriter(producer, transaction_records=transaction_records)
    await producer.start()
    watching = asyncio.get_running_loop().create_task(writer.watch())
    try:
        yield writer
        await writer.finish()
        await producer.close()
    except KafkaError as error:
        failure = failure_for(error)
        raise type(failure)(_told(failure.message, writer) if writer.has_sent else failure.message) from None
    except ValueError as error:
        await writer.stop()
        raise Failure(_told(str(error), writer)) from None
    finally:
        watching.cancel()
        await producer.close(CLOSE_TIMEOUT_MS)


def _told(message: str, writer: RecordWriter) -> str:
    count = writer.written
    return f"{message}; {counted(count)} {'was' if count == 1 else 'were'} written before"


def counted(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"
