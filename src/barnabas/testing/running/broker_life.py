"""Lives of one broker of a test: it keeps its port, its data, its fault rules and its log over restarts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.node.broker import Broker
from barnabas.node.membership.coordination_store import OpenCoordination
from barnabas.testing.running.broker_thread import BrokerThread
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.other_threads import check_process
from barnabas.testing.running.wires import HeldPorts, Wires

LISTENERS: Final = "listeners"


class Surroundings(NamedTuple):
    """Loop, store and metrics address of a broker's life; its wires are its own."""

    make_wires: Callable[[], Wires]
    make_loop: Callable[[Wires], asyncio.AbstractEventLoop]
    opener: Callable[[Wires], OpenCoordination | None] = lambda _: None
    metrics_address: Endpoint | None = None
    beside: Callable[[Broker], Coroutine[Any, Any, None]] | None = None
    """Coroutine beside the broker, from its start to its end."""


class BrokerLife:
    def __init__(self, name: str, settings: Mapping[str, str], kit: Kit, around: Surroundings) -> None:
        self.kit = kit
        self.name = name
        self._settings = dict(settings)
        self._around = around
        self._thread: BrokerThread | None = None
        self._last: BrokerThread | None = None
        self._process = os.getpid()
        self._ports = HeldPorts()

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def is_paused(self) -> bool:
        return self._thread is not None and self._thread.is_paused

    @property
    def is_serving(self) -> bool:
        """Whether it has started and is not paused."""
        thread = self._thread
        return thread is not None and thread.is_started and not thread.is_paused

    @property
    def thread(self) -> BrokerThread:
        """The present thread. RuntimeError while there is none."""
        thread = self._thread
        if thread is None:
            raise RuntimeError(f"{self.name} does not run now; restart it first")
        return thread

    def check_runs(self) -> None:
        """Raise RuntimeError while there is no thread."""
        assert self.thread is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of a broker that has started."""
        thread = self._thread
        return thread.loop if thread is not None and thread.is_started else None

    @property
    def broker(self) -> Broker:
        """The broker, or the last one while none runs and while the next one starts."""
        thread, last = self._thread, self._last
        if thread is None or (last is not None and not thread.is_started):
            thread = last
        assert thread is not None
        return thread.broker

    @property
    def wires(self) -> Wires:
        return self.thread.wires

    def launch(self) -> None:
        """Begin to start; `wait_started` waits."""
        if self._thread is not None:
            raise RuntimeError(f"{self.name} runs already")
        check_process(self.name, self._process)
        self._join_last()
        wires = self._around.make_wires()
        wires.ports = self._ports
        self.kit.begin_life()
        self._thread = BrokerThread(
            BrokerConfig.load(self._settings),
            self.kit,
            wires=wires,
            make_loop=lambda: self._around.make_loop(wires),
            open_store=self._around.opener(wires),
            metrics_address=self._around.metrics_address,
            beside=self._around.beside,
            name=f"barnabas-{self.name}",
        )
        self._thread.start()

    def wait_started(self) -> None:
        """Raises the error of a start that failed."""
        try:
            self.thread.wait_started()
        except BaseException:
            self._thread = None
            raise
        # The next life listens on the same port: clients know it.
        self._settings[LISTENERS] = ",".join(map(str, self.thread.broker.bound_listeners))

    def start(self) -> None:
        self.launch()
        self.wait_started()

    def stop(self) -> None:
        """Shut down; one that was killed has released everything when this returns."""
        thread = self._take()
        if thread is not None:
            thread.stop()
        self._join_last()

    def kill(self, then: Callable[[], None] = lambda: None) -> None:
        """End without a farewell. `then` runs when the broker can do nothing more."""
        thread = self._take()
        if thread is not None:
            thread.kill(then)

    def _join_last(self) -> None:
        if self._last is not None:
            self._last.join()

    def end(self) -> None:
        """Shut down for good: the ports are free for others."""
        self.stop()
        self._ports.release()

    def _take(self) -> BrokerThread | None:
        check_process(self.name, self._process)
        thread, self._thread = self._thread, None
        self._last = thread or self._last
        return thread
