"""Waiting time of a small produce beside large batches, and beside reads of data that is not in memory.

The other client is a process of its own, and asks for more as soon as it has its answer.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from raw_load import run_load
from tests.support import wire
from tests.support.broker import Broker
from tests.support.fixtures import create_topic
from warm_memory import warm_memory
from works import Figures, Scale, assert_all_stored, produce_frame

HEAVY_RECORD_BYTES = 960_000
HEAD_START_S = 0.5
TIMEOUT_S = 60.0


def beside(broker: Broker, scale: Scale) -> Figures:
    create_topic(broker, "small")
    small = produce_frame("small", [bytes(100)])
    run_load(broker.port, small, seconds=scale.seconds / 2)
    others = {"heavy": _write_much(broker), "cold": _read_cold(broker, scale)}
    figures: Figures = {}
    for name, other in others.items():
        # Not for long: a broker that writes two gigabytes a second soon waits for any disk.
        with warm_memory(5 * scale.produce_bytes), _busy(other):
            load = run_load(broker.port, small, seconds=scale.seconds / 3)
        figures[f"beside_{name}_p50_us"] = load.latency.percentile_us(50)
        figures[f"beside_{name}_p99_us"] = load.latency.percentile_us(99)
    return figures


@contextmanager
def _busy(other: Callable[[], None]) -> Iterator[None]:
    process = multiprocessing.Process(target=other)
    process.start()
    time.sleep(HEAD_START_S)
    try:
        yield
        assert process.is_alive(), "the other client had nothing to do any more"
    finally:
        process.kill()
        process.join()


def _write_much(broker: Broker) -> Callable[[], None]:
    """Batches of a megabyte, five in flight."""
    create_topic(broker, "heavy")
    frame = produce_frame("heavy", [bytes(HEAVY_RECORD_BYTES)])
    return lambda: _pour_forever(broker, frame)


def _pour_forever(broker: Broker, frame: bytes) -> None:
    while True:
        run_load(broker.port, frame, depth=5, seconds=TIMEOUT_S)


def _read_cold(broker: Broker, scale: Scale) -> Callable[[], None]:
    """A log from its beginning to its end, again and again, each time out of the page cache."""
    create_topic(broker, "cold")
    count = scale.produce_bytes // HEAVY_RECORD_BYTES
    load = run_load(broker.port, produce_frame("cold", [bytes(HEAVY_RECORD_BYTES)]), depth=2, requests=count)
    assert_all_stored(broker, "cold", load)
    return lambda: _read_forever(broker, count)


def _read_forever(broker: Broker, count: int) -> None:
    with wire.WireConnection(broker.host, broker.port, timeout_s=TIMEOUT_S) as connection:
        while True:
            for path in sorted((broker.data_directory / "cold-0").glob("*.log")):
                _forget(path)
            for offset in range(count):
                connection.ask(wire.FETCH, 4, wire.fetch_body("cold", offset, max_bytes=1_000_000))


def _forget(path: Path) -> None:
    """Out of the page cache, which lets go only of what is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
