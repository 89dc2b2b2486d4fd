"""A real broker on a thread of the test process.

    with run_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It listens on a free port of the loopback interface, and starts in a few tens of milliseconds. Its data
directory is temporary, unless the test gives one. Everything is real: the sockets, the protocol, the files.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.broker import Broker
from barnabas.node.main import loop_factory


class RunningBroker:
    """Handle of a test on its broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(str(each.endpoint) for each in self._broker.bound_listeners)

    def metrics_text(self) -> str:
        """Content of the metrics page, in the Prometheus format."""
        return render_prometheus(self._broker.metrics)

    @property
    def broker_id(self) -> int:
        return self._broker.broker_id


@contextmanager
def run_broker(
    settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
) -> Iterator[RunningBroker]:
    """Run a broker during the context; `settings` are Kafka's keys."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as scratch:
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data_dir or scratch),
            # In production a new group waits for more members; a test has none.
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        thread = _BrokerThread(BrokerConfig.load(properties))
        thread.start()
        thread.started.wait()
        if thread.failure is not None:
            thread.join()
            raise thread.failure
        assert thread.broker is not None
        try:
            yield RunningBroker(thread.broker)
        finally:
            thread.stop()
            thread.join()


class _BrokerThread(threading.Thread):
    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(name="barnabas-broker", daemon=True)
        self.started = threading.Event()
        self.failure: BaseException | None = None
        self.broker: Broker | None = None
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    def run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        broker = Broker(self._config)
        try:
            await broker.startup()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self.failure = error
            await broker.shutdown()
            return
        finally:
            self.broker = broker
            self.started.set()
        await self._stopped.wait()
        await broker.shutdown()
