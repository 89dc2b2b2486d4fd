"""Memory of the producer while its broker is away: resident memory before, at its peak and after the return.

    python -m bench.outage                        # a minute, paused, with 32 MB of buffer.memory
    python -m bench.outage --seconds 60 --how killed

A hundred tasks send records of 100 B without a pause, so the buffer fills at once, and the senders wait for
room. The broker is a process of its own; the memory is this process's. Prints JSON; nothing here is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.broker import BarnabasBroker, running

from barnabas.client import Producer

TOPIC = "bench-outage"
TASKS = 100
VALUE = b"x" * 100
WARMING = 20_000
SAMPLES_EVERY_S = 0.1


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def measure(broker: BarnabasBroker, seconds: float, buffer_bytes: int, how: str) -> dict[str, Any]:
    sent = 0
    is_over = False

    async def write(producer: Producer) -> None:
        nonlocal sent
        while not is_over:
            await producer.send(TOPIC, VALUE)
            sent += 1

    async with Producer(broker.bootstrap, buffer_memory=buffer_bytes, max_block_ms=600_000) as producer:
        await (await producer.send_many(TOPIC, [VALUE] * WARMING))
        gc.collect()
        before = peak = resident_bytes()
        if how == "killed":
            await asyncio.to_thread(broker.kill)
        else:
            os.kill(broker.pid, signal.SIGSTOP)
        tasks = [asyncio.create_task(write(producer)) for _ in range(TASKS)]
        least_left = buffer_bytes
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            await asyncio.sleep(SAMPLES_EVERY_S)
            peak = max(peak, resident_bytes())
            left = producer.metrics.snapshot()["producer_buffer_available_bytes"]
            least_left = min(least_left, int(left))
        waiting = producer.metrics.snapshot()["producer_waiting_senders"]
        is_over = True
        if how == "killed":
            await asyncio.to_thread(broker.start)
        else:
            os.kill(broker.pid, signal.SIGCONT)
        await asyncio.gather(*tasks)
        await producer.flush()
        acknowledged = int(producer.metrics.snapshot()["producer_record_send_total"]) - WARMING
    return {
        "buffer_bytes": buffer_bytes,
        "least_left_bytes": least_left,
        "waiting_senders": waiting,
        "rss_before_bytes": before,
        "rss_peak_bytes": peak,
        "sent": sent,
        "acknowledged": acknowledged,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--buffer-bytes", type=int, default=32 * 1024 * 1024)
    parser.add_argument("--how", choices=("paused", "killed"), default="paused")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = BarnabasBroker(Path(directory))
        with running(broker):
            print(json.dumps(asyncio.run(measure(broker, given.seconds, given.buffer_bytes, given.how))))


if __name__ == "__main__":
    main()
