"""A tail and the broker that it reads from."""

from __future__ import annotations

import asyncio

from barnabas.client.extensions.records import Record
from barnabas.client.producer.producer import Producer
from barnabas.console.records.tails import Tails
from barnabas.core.clock import SystemClock
from barnabas.testing.broker import run_broker

RECORDS = 200


async def keep_all(_: Record[bytes | None, bytes | None]) -> bool:
    return True


def test_a_leader_answers_by_time_and_not_by_record() -> None:
    """One answer for each produce request nearly doubles what a record costs the broker."""
    with run_broker() as broker:

        async def follow() -> int:
            tails, shown = Tails(SystemClock()), 0
            properties = {"bootstrap.servers": broker.bootstrap}
            async with Producer(properties, linger_ms=0) as producer:
                await producer.publish("orders", b"the topic is created")
                news = tails.follow("viewer", properties, "orders", keep_all)
                await anext(news)
                before = len(broker.requests(api="Fetch"))
                for number in range(RECORDS):
                    await producer.publish("orders", b"%d" % number)
                async for each in news:
                    shown += len(each.records) + each.skipped
                    if shown == RECORDS:
                        break
                fetches = len(broker.requests(api="Fetch")) - before
            await tails.close()
            return fetches

        assert asyncio.run(follow()) < RECORDS / 2
