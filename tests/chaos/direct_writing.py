"""A writer that sends to one broker only, so that it is the first to meet a deposed leader.

Other clients look for the leader, and write to the next one by the time that a deposed one is back. This
writer keeps its connection to its broker through all faults, and has one write with acks=1 in flight. A
broker that does not lead refuses the write; most of them do nothing else.
"""

from __future__ import annotations

import asyncio
import time
from itertools import cycle

from barnabas.client.aio.channel import Channel
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import build_batch
from tests.chaos.history import History, Outcome, Value, Write
from tests.chaos.workload import Worker
from tests.support.secured_cluster import Reach

PAUSE_S = 0.01
REFUSED_PAUSE_S = 0.002
"""Shorter than the moment between a new session and the controller's first word in it."""
RECONNECT_S = 0.1
ANSWER_TIMEOUT_MS = 20_000
CONNECT_TIMEOUT_S = 2.0
LAST_VERSION_BY_NAME = 12
CLOCK = SystemClock()


class DirectWriting(Worker):
    def __init__(
        self,
        broker: int,
        reach: Reach,
        address: Endpoint,
        topic: str,
        partitions: int,
        history: History,
    ) -> None:
        super().__init__(f"direct-{broker}")
        self._broker = broker
        self._reach = reach
        self._address = address
        self._topic = topic
        self._partitions = cycle(range(partitions))
        self._history = history
        self._number = 0

    def _work(self) -> None:
        asyncio.run(self._write_until_stopped())

    async def _write_until_stopped(self) -> None:
        while not self._stop.is_set():
            channel: Channel | None = None
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    channel = await Channel.connect(self._address, security=self._reach.security)
                while not self._stop.is_set():
                    write = await self._write(channel)
                    is_led_here = write.outcome is Outcome.ACKNOWLEDGED
                    await asyncio.sleep(PAUSE_S if is_led_here else REFUSED_PAUSE_S)
            except (KafkaError, OSError, TimeoutError) as error:
                self._meet(error)
                await asyncio.sleep(RECONNECT_S)
            finally:
                if channel is not None:
                    channel.close()

    async def _write(self, channel: Channel) -> Write:
        self._number += 1
        write = Write(
            Value(self.name, self._number),
            self._topic,
            next(self._partitions),
            acks=1,
            began_s=time.monotonic(),
            broker=self._broker,
        )
        try:
            answer = await channel.send(
                _request(write),
                ProduceResponse,
                version_max=LAST_VERSION_BY_NAME,
                timeout_ms=ANSWER_TIMEOUT_MS,
            )
            settle(write, answer.responses[0].partition_responses[0], time.monotonic())
        finally:
            if write.outcome is not Outcome.REFUSED:
                self._history.writes.append(write)
        return write


def settle(write: Write, answer: PartitionProduceResponse, answered_s: float) -> None:
    """A refused write is not in the log; the fate of a write without a response is unknown."""
    write.answered_s = answered_s
    if answer.error_code:
        write.outcome = Outcome.REFUSED
    else:
        write.outcome, write.offset = Outcome.ACKNOWLEDGED, answer.base_offset


def _request(write: Write) -> ProduceRequest:
    batch = build_batch([(None, write.value.encode(), (), CLOCK.now_ms())])
    data = PartitionProduceData(index=write.partition, records=bytes(batch))
    return ProduceRequest(
        acks=write.acks,
        timeout_ms=ANSWER_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=write.topic, partition_data=[data])],
    )
