"""Background tasks of the consumer: their failures reach the caller, and no request waits behind a fetch."""

from __future__ import annotations

import asyncio
from typing import assert_type

import pytest

from barnabas.client import BackgroundFailed, Consumer, Record
from barnabas.client.consumer.coordination import Coordination
from barnabas.client.consumer.core.fetch_plans import FetchPlans
from barnabas.client.consumer.position_updates import PositionUpdates
from tests.scenario.consumer.conftest import PATIENCE_S, Bench, read
from tests.scenario.consumer.test_consumer import numbered

LONG_MS = 20_000


class Unexpected(Exception):
    """Error that no part of the client foresees."""


def fail(*_: object, **__: object) -> None:
    raise Unexpected("planted")


@pytest.mark.parametrize(
    ("part", "method"), [(Coordination, "_look"), (FetchPlans, "answered"), (PositionUpdates, "_unmoved")]
)
async def test_an_unexpected_error_in_the_background_reaches_the_caller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    await bench.create(1)
    await bench.write(numbered(3))
    monkeypatch.setattr(part, method, fail)
    async with asyncio.timeout(PATIENCE_S / 3), bench.consumer() as consumer:
        for _ in range(2):  # the consumer stays broken
            with pytest.raises(BackgroundFailed, match="planted") as raised:
                await consumer.get_one()
            assert isinstance(raised.value.__cause__, Unexpected)


async def test_positions_do_not_wait_for_a_long_fetch(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))
    async with bench.consumer(fetch_max_wait_ms=LONG_MS) as consumer:
        await read(consumer, 3)
        await asyncio.sleep(0.2)  # the next fetch is at the broker, which holds it back
        async with asyncio.timeout(LONG_MS / 2_000):
            assert await consumer.end_offsets([bench.at()]) == {bench.at(): 3}
            assert bench.topic in await consumer.topics()


async def test_a_commit_is_kept_when_the_block_fails_after_it(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))

    async def fail_after_commit() -> None:
        async with bench.consumer() as consumer:
            await consumer.get_one()
            await consumer.commit()
            raise Unexpected

    with pytest.raises(Unexpected):
        await fail_after_commit()
    async with bench.consumer() as consumer:
        assert (await consumer.get_one()).offset == 1


async def test_types_of_key_and_value_follow_the_deserializers(bench: Bench) -> None:
    """mypy judges the types; without them the two lines below do not pass it."""
    await bench.create(1)
    await bench.write([b"7"])
    consumer = Consumer(
        bench.bootstrap,
        group=bench.group,
        topics=[bench.topic],
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=int,
    )
    assert_type(consumer, Consumer[str, int])
    async with consumer:
        record = await consumer.get_one()
    assert_type(record, Record[str, int])
    assert record.value == 7
