"""One awaited send at a time: our producer and aiokafka's in one process, in turns of fifty sends.

    python -m bench.lone_sends

Turns share the noise of the machine, so the ratio of the medians holds on a busy one too. The CPU is the
client's, since the broker is another process. Nothing here is asserted.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer
from tests.support.broker import BarnabasBroker, running

from barnabas.client import Producer

TOPIC = "bench-lone"
VALUE = b"x" * 100
TURNS = 40
SENDS = 50


async def measure(bootstrap: str) -> None:
    theirs = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await theirs.start()
    try:
        async with Producer(bootstrap, linger_ms=0) as ours:
            both = {"barnabas": ours.publish, "aiokafka": theirs.send_and_wait}
            times_s: dict[str, list[float]] = {name: [] for name in both}
            cpu_s = dict.fromkeys(both, 0.0)
            for turn in range(TURNS + 2):
                for name, send in list(both.items())[:: 1 if turn % 2 else -1]:
                    began_cpu_s = time.process_time()
                    for _ in range(SENDS):
                        began_s = time.perf_counter()
                        await send(TOPIC, VALUE)
                        if turn >= 2:  # the first turns warm up
                            times_s[name].append(time.perf_counter() - began_s)
                    if turn >= 2:
                        cpu_s[name] += time.process_time() - began_cpu_s
    finally:
        await theirs.stop()
    for name, each in times_s.items():
        print(
            f"{name}: p50 {statistics.median(each) * 1e6:.0f} µs, CPU {cpu_s[name] / len(each) * 1e6:.0f} µs"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, running(BarnabasBroker(Path(directory))) as broker:
        asyncio.run(measure(broker.bootstrap))


if __name__ == "__main__":
    main()
