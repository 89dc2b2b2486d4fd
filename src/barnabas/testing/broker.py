"""A real broker on a thread of the test process.

    with run_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It listens on a free port of the loopback interface, and starts in a few tens of milliseconds. Its data
directory is temporary, unless the test gives one. Everything is real: the sockets, the protocol, the files.
A test can make it misbehave (`faults`, `disk`), move its time (`time`), and look into it (`records`,
`committed`, `requests`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.broker import Broker
from barnabas.node.main import loop_factory
from barnabas.testing import history
from barnabas.testing.asking import inspection
from barnabas.testing.asking.looking import Looking
from barnabas.testing.faults.disk import Disk
from barnabas.testing.faults.request_log import SeenRequest
from barnabas.testing.faults.rules import Faults
from barnabas.testing.running.broker_life import BrokerLife, Surroundings
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.other_threads import ask
from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop, VirtualTime
from barnabas.testing.running.wires import Wires
from barnabas.testing.snapshots import check_copy, copy_data

T = TypeVar("T")
Time = Literal["real", "virtual"]
Beside = Callable[[Broker], Coroutine[Any, Any, None]]
"""Coroutine beside a broker, on its loop."""

SMALL_INTERNAL_TOPICS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Kafka makes fifty partitions of each, and a test would wait for them."""
QUICK_SETTINGS: Final = {
    # In production a new group waits for more members; a test has none.
    "group.initial.rebalance.delay.ms": "0",
    **SMALL_INTERNAL_TOPICS,
}


class RunningBroker(Looking):
    """Handle of a test on its broker, for all its lives."""

    def __init__(self, life: BrokerLife, data_dir: Path, time: VirtualTime | None) -> None:
        self._life = life
        self._data_dir = data_dir
        self._time = time
        self._snapshots: list[tempfile.TemporaryDirectory[str]] = []
        self.faults: Faults = life.kit.faults
        """Rules that make requests go wrong."""
        life.kit.actions.client = lambda: inspection.kit_client(
            inspection.plain_addresses(life.broker.bound_listeners)
        )

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(str(each.endpoint) for each in self._life.broker.bound_listeners)

    @property
    def listeners(self) -> str:
        """Names and addresses of all listeners, as in `listeners`."""
        return ",".join(map(str, self._life.broker.bound_listeners))

    @property
    def broker_id(self) -> int:
        return self._life.broker.broker_id

    @property
    def is_running(self) -> bool:
        """False after `kill` and `stop`."""
        return self._life.is_running

    @property
    def is_paused(self) -> bool:
        """Whether it stands still, between `pause` and `resume`."""
        return self._life.is_paused

    @property
    def disk(self) -> Disk:
        """The disk, which can be full, broken or slow. A broker that restarts has one without faults."""
        return self._life.kit.disk

    @property
    def time(self) -> VirtualTime:
        """The broker's time, which the test moves; RuntimeError unless it runs with `time="virtual"`."""
        if self._time is None:
            raise RuntimeError('this broker runs on real time; start it with run_broker(time="virtual")')
        return self._time

    @property
    def halt_reason(self) -> str:
        """Reason for which the broker halted, such as a full disk; empty while it runs."""
        return self._life.broker.halt_reason

    def metrics_text(self) -> str:
        """Content of the metrics page, in the Prometheus format."""
        return render_prometheus(self._life.broker.metrics)

    def requests(self, api: str | None = None, *, client_id: str | None = None) -> list[SeenRequest]:
        """The last requests of clients, in the order of their arrival: `requests(api="Fetch")`."""
        return self._life.kit.requests.seen(api, client_id)

    @property
    def requests_received(self) -> int:
        """Number of requests of clients in all lives of the broker."""
        return self._life.kit.requests.received

    def log_lines(self) -> list[str]:
        """The last lines of the broker's log, from INFO on."""
        return self._life.kit.log.lines()

    def history(self) -> str:
        """The last requests, the fault rules with their hits, and the end of the log, as a text. pytest shows
        it with a failed test."""
        shown = history.sections(self, f"broker {self.broker_id}")
        return "\n".join(f"--- {title} ---\n{text}" for title, text in shown)

    def stop(self) -> None:
        """Shut the broker down, as SIGTERM does. `restart` starts it again."""
        self._life.stop()

    def kill(self) -> None:
        """End the broker as `kill -9` does: nothing more is written or answered."""
        self._life.kill()

    def restart(self) -> None:
        """Start the broker on its port and data, after a clean stop if it runs."""
        self._life.stop()
        self._life.start()

    def pause(self) -> None:
        """Let the broker stand still: connections stay open, and nothing is answered."""
        self._life.thread.pause()

    def resume(self) -> None:
        self._life.thread.resume()

    def snapshot(self, into: Path | None = None) -> Path:
        """Copy the data, and return the directory of the copy. It goes with the broker, unless `into` names a
        directory, which is empty or has older data."""
        self._check_data_is_here()
        target = into or self._new_directory()
        check_copy(self._data_dir, target)
        was_running = self._life.is_running
        self._life.stop()
        try:
            copy_data(self._data_dir, target)
        finally:
            if was_running:
                self._life.start()
        return target

    def restore(self, snapshot: Path) -> None:
        """Go back to the data of a snapshot. The broker restarts on its port, and clients connect again."""
        self._check_data_is_here()
        check_copy(snapshot, self._data_dir)
        self._life.stop()
        copy_data(snapshot, self._data_dir)
        self._life.start()

    def _check_data_is_here(self) -> None:
        """Raise RuntimeError if a copy of the data directory would lack a log directory."""
        here = self._data_dir.absolute()
        elsewhere = [str(each) for each in self._life.broker.config.log_dirs if each.absolute() != here]
        if elsewhere:
            raise RuntimeError(
                f"a snapshot is a copy of {self._data_dir}, and log.dirs names {', '.join(elsewhere)} too"
            )

    def _new_directory(self) -> Path:
        self._snapshots.append(tempfile.TemporaryDirectory(prefix="barnabas-snapshot-"))
        return Path(self._snapshots[-1].name)

    def _forget_snapshots(self) -> None:
        for each in self._snapshots:
            each.cleanup()

    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Put a question to the broker as a client, on the broker's own loop."""
        thread = self._life.thread
        if thread.is_paused:
            raise RuntimeError("the broker is paused and answers nothing; resume it first")

        if thread.broker.halt_reason:
            raise RuntimeError(f"the broker halted, and answers nothing: {thread.broker.halt_reason}")
        endpoints = inspection.plain_addresses(thread.broker.bound_listeners)

        async def put() -> T:
            async with inspection.kit_client(endpoints) as cluster:
                return await question(cluster)

        return ask(thread, thread.loop, put)


@contextmanager
def run_broker(
    settings: Mapping[str, str] | None = None,
    *,
    data_dir: Path | None = None,
    snapshot: Path | None = None,
    time: Time = "real",
) -> Iterator[RunningBroker]:
    """Run a broker during the context; `settings` are Kafka's keys. It starts with the data of `snapshot`, if
    one is given."""
    check_time(time)
    with tempfile.TemporaryDirectory(prefix="barnabas-") as scratch:
        directory = data_dir or Path(scratch)
        if snapshot is not None:
            copy_data(snapshot, directory)
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            **QUICK_SETTINGS,
            **(settings or {}),
        }
        with open_broker(properties, directory, Kit(is_lasting=data_dir is not None), time=time) as broker:
            yield broker


@contextmanager
def open_broker(
    properties: Mapping[str, str],
    directory: Path,
    kit: Kit,
    *,
    time: Time,
    metrics_address: Endpoint | None = None,
    beside: Beside | None = None,
) -> Iterator[RunningBroker]:
    """Run a broker with these properties and no others; its data is in `directory`."""
    clock = VirtualClock() if time == "virtual" else None
    factory = loop_factory() if clock is None else lambda: VirtualLoop(clock)
    around = Surroundings(
        Wires, lambda _: factory(), metrics_address=metrics_address, beside=beside
    )  # fmt: skip
    life = BrokerLife("broker", properties, kit, around)
    with ExitStack() as stack:
        stack.callback(life.end)
        life.start()
        broker = RunningBroker(life, directory, None if clock is None else virtual_time(clock, life))
        history.remember(broker)
        stack.callback(broker._forget_snapshots)
        yield broker


def virtual_time(clock: VirtualClock, life: BrokerLife) -> VirtualTime:
    """Time of one broker."""

    def loops() -> list[VirtualLoop]:
        return [life.loop] if isinstance(life.loop, VirtualLoop) else []

    return VirtualTime(clock, loops)


def check_time(time: str) -> None:
    if time not in ("real", "virtual"):
        raise ValueError(f"time={time!r}: write 'real' or 'virtual'")
