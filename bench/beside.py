"""Waiting time of a small produce beside a heavy writer, a slow disk, a reader of cold data.

    python bench/beside.py --seconds 3

A broker of this working tree serves one-record produce requests, one in flight, on one topic: alone; beside a
producer that writes 1 MB batches to another topic as fast as it can; beside one whose disk takes 50 ms for
every large write; and beside a consumer whose data is not in the page cache, on a disk that takes 20 ms for a
read. The slow disk is a file interface: large writes to the topic `slow`, and reads of the topic `cold`,
sleep instead of the kernel. The difference to the first row is the cost of the other client's disk, or of its
megabytes. Rows of one run are compared; no figure counts alone.

The same of a compiled wheel, or of another commit, unpacked somewhere:
`PYTHONPATH=there python bench/beside.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
if "PYTHONPATH" not in os.environ:
    sys.path.insert(1, str(Path(__file__).parents[1] / "src"))

from bench.raw_load import LoadResult, run_load
from bench.request_path import create_topic, fetch_frame, produce_frame

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.compiled import CODE
from barnabas.core.files import RealFile, RealFiles
from barnabas.node.broker import Broker
from barnabas.node.gc_tuning import collect_seldom
from barnabas.node.main import serve_broker

LARGE_BYTES = 256 * 1024
WRITE_S, READ_S = 0.050, 0.020
HEAVY = (1000, 1_000)
"""Records of a heavy batch, and bytes of each."""


class SlowFile(RealFile):
    """Sleeps where a disk would keep the caller waiting. Data that was read once is in memory."""

    __slots__ = ("_is_cold", "_is_slow", "_known")

    def __init__(self, fd: int, *, is_slow: bool, is_cold: bool) -> None:
        super().__init__(fd)
        self._is_slow = is_slow
        self._is_cold = is_cold
        self._known = 0.0

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        if self._is_slow and len(data) >= LARGE_BYTES:
            time.sleep(WRITE_S)
        return super().write_at(position, data)

    def read_at(self, position: int, length: int) -> bytes:
        if self._is_cold and length > 4_096:
            time.sleep(READ_S)
            self._known = time.perf_counter()
        return super().read_at(position, length)

    def read_now(self, position: int, length: int) -> Any:
        """Cold again after a while, so that every answer has to be waited for."""
        if self._is_cold and time.perf_counter() - self._known > READ_S:
            return None
        return super().read_at(position, length)

    def fileno(self) -> int:
        if self._is_cold and time.perf_counter() - self._known > READ_S:
            time.sleep(READ_S)  # sendfile of what is not there
        return super().fileno()


class SlowFiles(RealFiles):
    def open(self, path: str, *, create: bool = False) -> SlowFile:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        is_log = path.endswith(".log")
        return SlowFile(opened, is_slow=is_log and "/slow-" in path, is_cold=is_log and "/cold-" in path)


def serve(directory: str) -> None:
    config = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory})
    runner: Any = asyncio.run
    try:
        import uvloop

        runner = uvloop.run
    except ImportError:
        pass

    async def main() -> None:
        collect_seldom()
        await serve_broker(Broker(config, files=SlowFiles()), asyncio.Event())

    runner(main())


@contextmanager
def slow_broker() -> Iterator[int]:
    """The port of a broker in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", scratch], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            yield int(ready.split("PLAINTEXT://127.0.0.1:")[1].split(",")[0])
        finally:
            process.kill()
            process.wait()


@contextmanager
def busy(port: int, frame: bytes, depth: int, seconds: float) -> Iterator[None]:
    other = multiprocessing.Process(
        target=run_load, args=(port, frame), kwargs={"depth": depth, "seconds": seconds + 1.0}
    )
    other.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        other.join()


def show(name: str, result: LoadResult) -> None:
    latency = result.latency
    print(
        f"{name:44} {result.requests / result.seconds:8,.0f} req/s  "
        f"p50 {latency.percentile_us(50):8,.0f} us  p99 {latency.percentile_us(99):8,.0f} us  "
        f"max {latency.max_us:8,.0f} us",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="half a second a row")
    parser.add_argument("--serve", metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    seconds = 0.5 if options.quick else options.seconds
    print(CODE)
    with slow_broker() as port:
        for topic in ("bench", "heavy", "slow", "cold"):
            create_topic(port, topic)
        small = produce_frame(1, 100)
        run_load(port, produce_frame(*HEAVY, topic="cold"), depth=2, requests=20)
        run_load(port, small, seconds=0.3)
        show("alone", run_load(port, small, seconds=seconds))
        others = {
            "beside a producer of 1 MB batches": (produce_frame(*HEAVY, topic="heavy"), 5),
            "beside a disk of 50 ms a large write": (produce_frame(*HEAVY, topic="slow"), 2),
            "beside a cold reader, 20 ms a read": (fetch_frame(0, 1 << 20, topic="cold"), 1),
        }
        for name, (frame, depth) in others.items():
            with busy(port, frame, depth, seconds):
                show(name, run_load(port, small, seconds=seconds))


if __name__ == "__main__":
    main()
