"""A real broker on a thread of the test process.

    with run_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It listens on a free port of the loopback interface, and starts in a few tens of milliseconds. Its data
directory is temporary, unless the test gives one. Everything is real: the sockets, the protocol, the files.
A test can make it misbehave (`faults`, `disk`), move its time (`time`), and look into it (`records`,
`committed`, `requests`).
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

from barnabas.client.admin.groups import GroupDescription
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.broker import Broker
from barnabas.node.main import loop_factory
from barnabas.testing import inspection
from barnabas.testing.disk import Disk
from barnabas.testing.fault_rules import Faults
from barnabas.testing.inspection import StoredRecord
from barnabas.testing.kit import Kit
from barnabas.testing.request_log import SeenRequest
from barnabas.testing.virtual_time import VirtualClock, VirtualLoop, VirtualTime

T = TypeVar("T")

WAIT_S: float = 30.0


class RunningBroker:
    """Handle of a test on its broker."""

    def __init__(self, thread: _BrokerThread) -> None:
        assert thread.broker is not None
        self._thread = thread
        self._broker = thread.broker
        self.faults: Faults = thread.kit.faults
        """Rules that make requests go wrong."""
        self.disk: Disk = thread.kit.disk
        """The disk, which can be full, broken or slow."""

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(str(each.endpoint) for each in self._broker.bound_listeners)

    @property
    def broker_id(self) -> int:
        return self._broker.broker_id

    @property
    def time(self) -> VirtualTime:
        """The broker's time, which the test moves; RuntimeError unless it runs with `time="virtual"`."""
        loop = self._thread.loop
        if not isinstance(loop, VirtualLoop):
            raise RuntimeError('this broker runs on real time; start it with run_broker(time="virtual")')
        return VirtualTime(loop)

    @property
    def halt_reason(self) -> str:
        """Why the broker has stopped by itself, as on a full disk; empty while it runs."""
        return self._broker.halt_reason

    def metrics_text(self) -> str:
        """Content of the metrics page, in the Prometheus format."""
        return render_prometheus(self._broker.metrics)

    def requests(self, api: str | None = None, *, client_id: str | None = None) -> list[SeenRequest]:
        """The last requests of clients, in the order of their arrival: `requests(api="Fetch")`."""
        return self._thread.kit.requests.seen(api, client_id)

    def records(self, topic: str, *, committed: bool = False) -> list[StoredRecord]:
        """All records of a topic, by partition and offset; `committed` leaves out those of open and aborted
        transactions."""
        return self._ask(lambda cluster: inspection.read_records(cluster, topic, committed=committed))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Committed offsets of a group, by topic and partition."""
        return self._ask(lambda cluster: inspection.committed_offsets(cluster, group))

    def wait_for(
        self, *, group: str, state: str | None = None, members: int | None = None, timeout_s: float = WAIT_S
    ) -> GroupDescription:
        """Wait until a group has this state ("Stable", "Empty", …) and number of members."""
        return self._ask(
            lambda cluster: inspection.await_group(
                cluster, group, state=state, members=members, timeout_s=timeout_s
            )
        )

    def create_topic(self, name: str = "", *, partitions: int = 1, **configs: str) -> str:
        """Create a topic, with a unique name unless one is given, and return the name. Settings have
        underscores for dots: `retention_ms="1000"`."""
        name = name or f"topic-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self._ask(lambda cluster: inspection.create_topic(cluster, name, partitions, settings))
        return name

    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Put a question to the broker as a client, on the broker's own loop."""

        async def ask() -> T:
            async with inspection.kit_client(
                [each.endpoint for each in self._broker.bound_listeners]
            ) as cluster:
                return await question(cluster)

        return asyncio.run_coroutine_threadsafe(ask(), self._thread.loop).result()


@contextmanager
def run_broker(
    settings: Mapping[str, str] | None = None,
    *,
    data_dir: Path | None = None,
    time: Literal["real", "virtual"] = "real",
) -> Iterator[RunningBroker]:
    """Run a broker during the context; `settings` are Kafka's keys."""
    if time not in ("real", "virtual"):
        raise ValueError(f"time={time!r}: write 'real' or 'virtual'")
    with tempfile.TemporaryDirectory(prefix="barnabas-") as scratch:
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data_dir or scratch),
            # In production a new group waits for more members; a test has none.
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        thread = _BrokerThread(BrokerConfig.load(properties), VirtualClock() if time == "virtual" else None)
        thread.start()
        thread.started.wait()
        if thread.failure is not None:
            thread.join()
            raise thread.failure
        broker = RunningBroker(thread)
        try:
            yield broker
        finally:
            thread.kit.heal()
            thread.stop()
            thread.join()


class _BrokerThread(threading.Thread):
    def __init__(self, config: BrokerConfig, virtual: VirtualClock | None) -> None:
        super().__init__(name="barnabas-broker", daemon=True)
        self.started = threading.Event()
        self.failure: BaseException | None = None
        self.broker: Broker | None = None
        self.kit = Kit()
        self._config = config
        self._virtual = virtual
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def run(self) -> None:
        virtual = self._virtual
        factory = loop_factory() if virtual is None else lambda: VirtualLoop(virtual)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        assert self._stopped is not None
        self.loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        broker = self.kit.make_broker(self._config)
        try:
            await broker.startup()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self.failure = error
            await broker.shutdown()
            return
        finally:
            self.broker = broker
            self.started.set()
        ends = [asyncio.ensure_future(each.wait()) for each in (self._stopped, broker.halted)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()
        await broker.shutdown()
        await self._stopped.wait()  # a broker that stopped by itself can still be looked at
