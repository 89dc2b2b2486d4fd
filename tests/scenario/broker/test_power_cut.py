"""The power goes, again and again: nothing that was acknowledged is lost.

With `flush.messages=1` an acknowledgement means "on disk". Producers write side by side, with
acks=1 and acks=all, into several partitions; at a moment drawn from the seed the files lose what
was not synced, in part and at random, and the broker starts again on what is left.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import KafkaError
from barnabas.protocol.messages.produce import ProduceResponse
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, produce_request
from tests.support.power_cut_files import PowerCutFiles

PARTITIONS = 3
PRODUCERS = 6
LIVES = 3


class Run:
    """Lives of one broker on one disk, and what its producers were promised."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.files = PowerCutFiles(seed)
        self.files.make_lasting_directory(str(directory))
        for parent in [*directory.parents][::-1]:
            self.files.sync_directory("" if str(parent) == "/" else str(parent))
        self.acknowledged: dict[int, dict[int, bytes]] = {index: {} for index in range(PARTITIONS)}
        """By partition: the value at each offset that was promised."""
        self.sent = 0
        self.power_is_on = True
        self.left = 0
        self.enough_promised = asyncio.Event()

    def broker(self) -> InProcessBroker:
        return InProcessBroker(
            [self.directory],
            self.files,
            log_flush_interval_messages=1,
            log_segment_bytes=self.chance.choice([2_000, 20_000]),
            log_flush_offset_checkpoint_interval_ms=5,
            log_initial_task_delay_ms=1,
            log_retention_ms=-1,  # the timestamps of its records are years old
        )

    async def live(self) -> None:
        self.power_is_on = True
        broker = self.broker()
        await broker.start()
        if self.sent == 0:
            assert await broker.create_topic("topic", PARTITIONS) == 0
        await self.check(broker)
        self.enough_promised.clear()
        self.left = self.chance.randint(5, 60)
        producers = [asyncio.ensure_future(self.produce(broker, acks)) for acks in (1, -1) * (PRODUCERS // 2)]
        await self.enough_promised.wait()
        self.power_is_on = False
        await broker.lose_power(self.files)
        await asyncio.gather(*producers)

    async def produce(self, broker: InProcessBroker, acks: int) -> None:
        """Until the power goes; an answer that comes after that is no promise."""
        chance = random.Random(self.chance.random())
        try:
            channel = await Channel.connect(broker.address)
            while self.power_is_on:
                self.sent += 1
                partition = chance.randrange(PARTITIONS)
                value = b"%d-" % self.sent + chance.randbytes(chance.randint(0, 700))
                request = produce_request("topic", value, partition=partition, acks=acks)
                answer = await channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE)
                told = answer.responses[0].partition_responses[0]
                if self.power_is_on:
                    assert told.error_code == 0
                    assert told.base_offset not in self.acknowledged[partition], "an offset was used twice"
                    self.acknowledged[partition][told.base_offset] = value
                    self.left -= 1
                    if self.left == 0:
                        self.enough_promised.set()
        except KafkaError:
            assert not self.power_is_on
        finally:
            channel.close()

    async def check(self, broker: InProcessBroker) -> None:
        for partition, promised in self.acknowledged.items():
            found = await broker.read_all("topic", partition)
            for offset, value in promised.items():
                assert found[offset : offset + 1] == [value], f"offset {offset} of partition {partition}"
            # Records that nobody was promised may have survived: they keep their offsets from now on.
            promised.update(enumerate(value for value in found if value is not None))


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_acknowledged_is_lost_in_a_power_cut(seed: int, tmp_path: Path) -> None:
    run = Run(seed, tmp_path)
    for _ in range(LIVES):
        await run.live()
    last = run.broker()
    await last.start()
    await run.check(last)
    await last.stop()
