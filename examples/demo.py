"""`make demo`: a broker and its page, a clickstream, two pipelines on Spark, and a chart of their counts.

Everything is real and temporary: the broker listens on a free port of this machine, and its data directory is
deleted at the end. The console is on http://127.0.0.1:8080, or on a free port if that one is taken. One
pipeline cleans events into Parquet files and sends bad ones to a dead-letter topic. The other counts clicks
per page and window, exactly once, into a topic, which the chart reads. The demo ends DEMO_SECONDS (60) after
the first counts, or with Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from barnabas.cli.support.progress import AGAIN_S, Stages
from barnabas.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.jvm.session import SparkMissing, open_session
from barnabas.pipelines.spark.runner import RunningPipeline, start_pipeline
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress, partition_offsets
from barnabas.processes.console_process import READY_PREFIX
from barnabas.testing.broker import run_broker

PAGES = ("/", "/shop", "/cart", "/checkout", "/help", "/blog")
WEIGHTS = (40, 25, 12, 5, 8, 10)
EVENTS_PER_SECOND = 200
BAD_SHARE = 0.01
SCHEMA = "user STRING, page STRING, ms INT, at TIMESTAMP"
SOURCE = {"type": "topic", "topics": ["clicks"], "schema": SCHEMA}
BAR_WIDTH = 40
TABLE_WIDTH = 78
FIRST_RESULTS_SECONDS_MAX = 300
RESTARTS_MAX = 3
SETTLE_SECONDS_MAX = 60
PAGE_PORT = 8080
PAGE_SECONDS_MAX = 30


def clean(out: Path) -> dict[str, Any]:
    return {
        "name": "clean-clicks",
        "source": SOURCE,
        "transforms": [
            {"MaskField": "user"},
            {"sql": "SELECT *, ms > 800 AS slow, date(at) AS day FROM input WHERE page IS NOT NULL"},
        ],
        "sink": {"type": "files", "path": str(out), "partition_by": ["day"]},
        "errors": {"tolerance": "all", "dead_letter_topic": "bad-clicks"},
        "trigger": "5 seconds",
    }


COUNT: dict[str, Any] = {
    "name": "count-pages",
    "source": SOURCE,
    "transforms": [
        {
            "type": "window",
            "time": "at",
            "size": "10 seconds",
            "group_by": "page",
            "emit": "updates",
            "aggregates": {"clicks": "count(*)", "slowest_ms": "max(ms)"},
        }
    ],
    "sink": {"type": "topic", "topic": "page-counts", "key": ["page", "window_start"]},
    "errors": {"tolerance": "all"},
    "trigger": "2 seconds",
}


class Clickstream(threading.Thread):
    """Thread that writes clicks and reads the counts, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.produced = 0
        self.ended = threading.Event()
        """No more clicks are written; the counts are still read."""
        self.bad = 0
        self.windows: dict[tuple[str, str], int] = {}
        self.stopped = threading.Event()
        self.ready = threading.Event()
        self.broker = bootstrap
        self._random = random.Random(42)  # noqa: S311 - a demonstration

    def run(self) -> None:
        asyncio.run(self._work())

    def stop(self) -> None:
        self.ended.set()
        self.stopped.set()
        if self.is_alive():
            self.join()

    def clicks(self) -> Counter[str]:
        """Clicks per page over all windows, from the topic."""
        total: Counter[str] = Counter()
        for (page, _), count in self.windows.items():
            total[page] += count
        return total

    async def _work(self) -> None:
        async with Admin(self.broker) as admin:
            await admin.create_topics([NewTopic(each) for each in ("clicks", "page-counts", "bad-clicks")])
        self.ready.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write())
            tasks.create_task(self._read())

    async def _write(self) -> None:
        async with Producer(self.broker) as producer:
            while not self.ended.is_set():
                batch = [self._click() for _ in range(EVENTS_PER_SECOND // 4)]
                keys, values = zip(*batch, strict=True)
                await (await producer.send_many("clicks", values, keys=keys))
                self.produced += len(batch)
                await asyncio.sleep(0.25)

    def _click(self) -> tuple[bytes | None, bytes]:
        if self._random.random() < BAD_SHARE:
            self.bad += 1
            return None, b"{not a click"
        (page,) = self._random.choices(PAGES, WEIGHTS)
        user = f"user-{self._random.randrange(50)}"
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        click = {"user": user, "page": page, "ms": int(self._random.expovariate(1 / 250)), "at": at}
        return user.encode(), json.dumps(click).encode()

    async def _read(self) -> None:
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with Consumer(self.broker, **settings) as consumer:
            await consumer.assign([TopicPartition("page-counts", 0)])
            while not self.stopped.is_set():
                for record in await consumer.poll(timeout_ms=500):
                    row = json.loads(record.value or b"{}")
                    self.windows[row["page"], row["window_start"]] = row["clicks"]


@contextmanager
def page(bootstrap: str) -> Iterator[str | None]:
    """The console as a process of its own; gives its address, or None if it does not start."""
    command = [sys.executable, "-m", "barnabas", "console", "--bootstrap", bootstrap]
    command += ["--listen", f"127.0.0.1:{_page_port()}"]
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
    ) as process:
        # The output ends with the process, so a console that hangs at its start gives no address.
        patience = threading.Timer(PAGE_SECONDS_MAX, process.terminate)
        patience.start()
        assert process.stdout is not None
        ready = next((line for line in process.stdout if line.startswith(READY_PREFIX)), None)
        patience.cancel()
        try:
            yield None if ready is None else ready.removeprefix(READY_PREFIX).strip()
        finally:
            process.terminate()


def _page_port() -> int:
    """The console's usual port, or 0 for any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PAGE_PORT))
        except OSError:
            return 0
    return PAGE_PORT


def chart(stream: Clickstream, latest: dict[str, Progress], when: str) -> Table:
    table = Table(
        title=f"clicks per page, from topic page-counts ({when})",
        box=None,
        min_width=TABLE_WIDTH,
        show_header=False,
    )
    clicks = stream.clicks()
    most = max(clicks.values(), default=1)
    for page in PAGES:
        bar = "█" * round(BAR_WIDTH * clicks[page] / most)
        table.add_row(page, f"[cyan]{bar}[/]", f"{clicks[page]:,}")
    table.add_row("", "", "")
    for name, progress in sorted(latest.items()):
        lag = "" if progress.lag is None else f", lag {progress.lag}"
        rate = f"batch {progress.batch_id}: {progress.records} records in {progress.batch_ms} ms{lag}"
        table.add_row(name, rate, f"{progress.errors} bad" if progress.errors else "")
    table.add_row("produced", f"{stream.produced:,} events, {stream.bad} of them bad", "")
    return table


def show(
    console: Console,
    stream: Clickstream,
    latest: dict[str, Progress],
    running: list[RunningPipeline],
    seconds: float,
) -> None:
    """Show the chart for `seconds` after the first results: the start of Spark takes a varying time.

    A pipe gets a line every few seconds instead.
    """
    stages = Stages("demo")
    begun = time.perf_counter()
    said = begun - AGAIN_S
    end = None
    restarts = RESTARTS_MAX
    with Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as live:
        while end is None or time.perf_counter() < end:
            now = time.perf_counter()
            for at, pipeline in enumerate(running):
                if pipeline.failure is None:
                    continue
                if restarts == 0:
                    return
                # On a busy machine a worker may miss Spark's limit of ten seconds to start.
                restarts -= 1
                pipeline.stop()
                running[at] = _start(pipeline.run, latest)
            if end is None and (stream.windows or now - begun > FIRST_RESULTS_SECONDS_MAX):
                end = now + seconds
            when = f"{end - now:.0f} s left" if end is not None else _waited_for(latest, now - begun)
            live.update(chart(stream, latest, when))
            if not console.is_terminal and now - said >= AGAIN_S:
                said = now
                counted = sum(stream.clicks().values())
                stages.say(f"{stream.produced:,} clicks produced, {counted:,} counted; {when}")
            time.sleep(0.5)


def _waited_for(latest: dict[str, Progress], seconds: float) -> str:
    """Reason why there are no counts yet."""
    what = "the first counts" if latest else "Spark's first micro-batches"
    return f"waiting for {what}, {seconds:.0f} s …"


def settle(stream: Clickstream, latest: dict[str, Progress], running: list[RunningPipeline]) -> bool:
    """Wait until both pipelines have read every click and every count has come back."""
    deadline = time.perf_counter() + SETTLE_SECONDS_MAX
    while time.perf_counter() < deadline and not any(pipeline.failure for pipeline in running):
        reports = list(latest.values())
        has_read = len(reports) == len(running) and all(
            sum(partition_offsets(each.offsets).get("clicks", {}).values()) >= stream.produced
            for each in reports
        )
        if has_read and sum(stream.clicks().values()) >= stream.produced - stream.bad:
            return True
        time.sleep(0.25)
    return False


def summary(stream: Clickstream, rows: int, files: int, *, is_complete: bool) -> str:
    """The numbers at the end. Clean and bad clicks together are those produced."""
    said = (
        f"{stream.produced:,} clicks were produced, {stream.bad:,} of them bad;"
        f" {rows:,} clean ones lie in {files} files,"
        f" {sum(stream.clicks().values()):,} were counted in {len(stream.windows)} windows."
    )
    return said if is_complete else f"{said} The pipelines ended before they had read all of them."


def main() -> int:
    console = Console()
    stages = Stages("demo")
    seconds = float(os.environ.get("DEMO_SECONDS", "60"))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-demo-")))
        broker = stack.enter_context(run_broker())
        console.print(f"a broker listens on {broker.bootstrap}")
        address = stack.enter_context(page(broker.bootstrap))
        if address is not None:
            console.print(f"look at it on [bold]{address}[/]: topics, messages, groups, live")
        stages.enter("starting Spark, which takes some seconds")
        stack.callback(stages.leave)
        try:
            spark = open_session(None, {}, name="demo")
        except SparkMissing as error:
            console.print(f"[red]{error}[/]")
            return 1
        stack.callback(spark.stop)
        stream = Clickstream(broker.bootstrap)
        stack.callback(stream.stop)
        stream.start()
        stream.ready.wait()
        stages.leave()
        if not demonstrate(console, spark, stream, scratch, seconds):
            return 1
    console.print("the broker, Spark and every file are gone.")
    return 0


def _start(run: Run, latest: dict[str, Progress]) -> RunningPipeline:
    return start_pipeline(run, lambda progress: latest.update({progress.pipeline: progress}))


def demonstrate(console: Console, spark: Any, stream: Clickstream, scratch: Path, seconds: float) -> bool:
    """Run both pipelines; returns whether both ran to the end."""
    out = scratch / "clicks"
    latest: dict[str, Progress] = {}
    stages = Stages("demo")
    stages.enter("putting the pipelines together")
    running = [
        _start(Run(spark, load_document(document), stream.broker, str(scratch / "state")), latest)
        for document in (clean(out), COUNT)
    ]
    stages.leave()
    try:
        show(console, stream, latest, running, seconds)
    except KeyboardInterrupt:
        console.print("interrupted; stopping …")
    stream.ended.set()
    stages.enter("reading the last clicks, and ending the pipelines")
    is_complete = settle(stream, latest, running)
    stream.stop()
    failures = [failure for pipeline in running if (failure := pipeline.failure) is not None]
    for pipeline in running:
        pipeline.stop()
    for failure in failures:
        console.print(f"[red]a pipeline failed:[/] {failure}")
    files = [file for file in out.rglob("*.parquet") if "_spark_metadata" not in file.parts]
    rows = spark.read.parquet(str(out)).count() if files else 0
    stages.leave()
    if not console.is_terminal:
        console.print(chart(stream, latest, "at the end"))
    console.print(summary(stream, rows, len(files), is_complete=is_complete))
    return not failures


if __name__ == "__main__":
    sys.exit(main())
