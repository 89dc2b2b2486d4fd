"""Blocks of producer ids."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.administration.producer_ids import PREFETCH_BELOW, ProducerIds
from barnabas.cluster.coordination.contract import ConnectionLoss
from barnabas.cluster.znodes.layout import ProducerIdBlock
from barnabas.core.errors import CoordinatorNotAvailable


class Blocks:
    """A store that hands out blocks of 1000, once `answer` is set."""

    def __init__(self) -> None:
        self.taken = 0
        self.answer = asyncio.Event()
        self.answer.set()
        self.broken = False

    async def allocate(self) -> ProducerIdBlock:
        await self.answer.wait()
        if self.broken:
            raise ConnectionLoss("/latest_producer_id_block")
        self.taken += 1
        return ProducerIdBlock(1, (self.taken - 1) * 1000, self.taken * 1000 - 1)


async def test_ids_go_up_and_never_repeat() -> None:
    ids = ProducerIds(Blocks().allocate)
    assert [await ids.next() for _ in range(2500)] == list(range(2500))


async def test_nothing_is_taken_from_the_store_before_an_id_is_needed() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    await asyncio.sleep(0)
    assert blocks.taken == 0
    await ids.next()
    assert blocks.taken == 1


async def test_the_next_block_is_there_before_the_present_one_is_used_up() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    for _ in range(1000 - PREFETCH_BELOW):
        await ids.next()
    assert blocks.taken == 1
    ids.take()
    ids.take()
    await asyncio.sleep(0)
    assert blocks.taken == 2
    assert [ids.take() for _ in range(PREFETCH_BELOW)][-1] == 1001


async def test_all_who_wait_for_one_block_get_different_ids() -> None:
    blocks = Blocks()
    blocks.answer.clear()
    ids = ProducerIds(blocks.allocate)
    assert ids.take() is None
    waiting = [asyncio.create_task(ids.next()) for _ in range(20)]
    await asyncio.sleep(0)
    blocks.answer.set()
    assert sorted(await asyncio.gather(*waiting)) == list(range(20))
    assert blocks.taken == 1


async def test_a_store_that_fails_is_an_error_that_can_be_retried() -> None:
    blocks = Blocks()
    blocks.broken = True
    ids = ProducerIds(blocks.allocate)
    with pytest.raises(CoordinatorNotAvailable):
        await ids.next()
    blocks.broken = False
    assert await ids.next() == 0


async def test_closing_gives_up_a_fetch() -> None:
    blocks = Blocks()
    blocks.answer.clear()
    ids = ProducerIds(blocks.allocate)
    assert ids.take() is None
    await ids.close()
    assert blocks.taken == 0
