"""Memory of a task does not depend on the amount of data to read or write.

Python workers are reused from task to task, and the system keeps a process's largest size (VmHWM), which is
reset before each measurement. So any memory that a large backlog takes beyond a small one shows there.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

from tests.support.broker import Broker
from tests.support.fixtures import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MB = 1 << 20
SMALL_MB, LARGE_MB = 20, 400
GROWTH_MB_MAX = 48
"""Noise of the allocator and of Python's caches; a tenth of the backlog is far more than that."""
VALUE_BYTES = 1_000


class _Peak:
    """The largest size, in MB, of any Python process that Spark has started meanwhile."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def look(self, *, forget: bool = False) -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                command = child.cmdline()
                if any("pyspark" in word for word in command[1:]) and "python" in Path(command[0]).name:
                    self._look_at(Path(f"/proc/{child.pid}"), forget=forget)
            except (psutil.Error, OSError):
                continue  # it ended while it was looked at

    def _look_at(self, process: Path, *, forget: bool) -> None:
        if forget:
            (process / "clear_refs").write_text("5")  # the peak is what it is now
            return
        found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
        if found:
            self.peak_mb = max(self.peak_mb, int(found[1]) / 1024)

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            self.look()

    def __enter__(self) -> Self:
        self.look(forget=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.look()


def peak_mb(work: Any) -> float:
    with _Peak() as peak:
        work()
    assert peak.peak_mb > 0, "no Python worker was seen"
    return peak.peak_mb


def rows(spark: SparkSession, megabytes: int) -> Any:
    """Values that compress to a hundredth, in one task."""
    count = megabytes * MB // VALUE_BYTES
    return spark.range(0, count, 1, 1).selectExpr(f"rpad(cast(id as string), {VALUE_BYTES}, 'x') as value")


@pytest.fixture(scope="module")
def topics(broker: Broker) -> dict[tuple[str, int], str]:
    """By codec and size, still empty."""
    found = {}
    for codec in ("none", "zstd"):
        for size in (SMALL_MB, LARGE_MB):
            name = found[codec, size] = f"memory-{codec}-{size}"
            create_topic(broker, name)
    return found


def grows_little(small: float, large: float) -> bool:
    print(f"workers at their largest: {small:.0f} MB for {SMALL_MB} MB, {large:.0f} MB for {LARGE_MB} MB")
    return large - small < GROWTH_MB_MAX


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_memory_does_not_grow_with_what_is_written_or_read(
    spark: SparkSession, bootstrap: str, topics: dict[tuple[str, int], str], codec: str, tmp_path: Path
) -> None:
    at = {"kafka.bootstrap.servers": bootstrap}

    def write(size: int) -> None:
        options = {**at, "topic": topics[codec, size], "compression": codec}
        rows(spark, size).write.format("barnabas").mode("append").options(**options).save()

    def read(size: int) -> None:
        reader = spark.read.format("barnabas").options(**at, subscribe=topics[codec, size])
        reader.load().write.format("noop").mode("overwrite").save()

    def stream(size: int) -> None:
        reader = spark.readStream.format("barnabas").options(**at, subscribe=topics[codec, size])
        query = (
            reader.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / f"stream-{size}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        read_rows = [each["numInputRows"] for each in query.recentProgress]
        assert max(read_rows) == size * MB // VALUE_BYTES, "not in one batch"

    for work in (write, read, stream):
        assert grows_little(
            peak_mb(lambda work=work: work(SMALL_MB)), peak_mb(lambda work=work: work(LARGE_MB))
        )
