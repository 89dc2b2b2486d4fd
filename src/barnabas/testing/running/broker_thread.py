"""One broker on a thread of the test process: start, stop, pause, and an end without a farewell.

A thread cannot be killed as a process can. So a kill takes everything away from the broker that lies outside
of it, at one moment: its connections end and its files change no more. Nothing that the broker still does on
its thread reaches a client or a disk. Then its parts are released, and the thread ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.node.broker import Broker
from barnabas.node.lifecycle import BrokerState
from barnabas.node.membership.coordination_store import OpenCoordination
from barnabas.testing.running import broker_log
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.other_threads import KitThread, check_other_loop, check_process
from barnabas.testing.running.virtual_time import VirtualLoop
from barnabas.testing.running.wires import Wires

MakeLoop = Callable[[], asyncio.AbstractEventLoop]


class BrokerThread(KitThread):
    def __init__(
        self,
        config: BrokerConfig,
        kit: Kit,
        *,
        wires: Wires,
        make_loop: MakeLoop,
        open_store: OpenCoordination | None,
        metrics_address: Endpoint | None = None,
        beside: Callable[[Broker], Coroutine[Any, Any, None]] | None = None,
        name: str,
    ) -> None:
        super().__init__(name)
        self.kit = kit
        self.wires = wires
        self._config = config
        self._make_loop = make_loop
        self._open_store = open_store
        self._metrics_address = metrics_address
        self._beside = beside
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._must_end = False
        """Whether it was told to end, also before its loop runs."""
        self._moves = threading.Event()
        self._moves.set()
        self._was_killed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def is_started(self) -> bool:
        """Whether the start is over, also one that failed."""
        return self._ready.is_set()

    @property
    def is_paused(self) -> bool:
        return not self._moves.is_set()

    def wait_started(self) -> None:
        """Wait until the broker serves. Raises the error of a start that failed."""
        self._ready.wait()
        if self._failure is not None:
            self.join()
            raise self._failure

    def mute(self) -> None:
        """Write no more to the log."""
        broker_log.mute(self.ident or 0)

    def stop(self) -> None:
        """Shut the broker down, and wait for the end of the thread."""
        self.resume()
        self.kit.heal()
        self._tell_to_end()
        self.join()

    def kill(self, then: Callable[[], None]) -> None:
        """End the broker as `kill -9` does, also one that is paused. `then` runs when it can do nothing
        more. Its parts are released in the background; `join` waits for that."""
        self._was_killed = True
        self.mute()
        self.kit.disk.die()
        self.wires.die()
        try:
            then()
        finally:
            self.resume()
            self._tell_to_end()

    def pause(self) -> None:
        """Stand still, as after SIGSTOP: connections stay open, and nothing is answered."""
        check_process(self.name, self.process)
        check_other_loop(self.name, self.loop)
        if self._moves.is_set():
            self._moves.clear()
            stands = threading.Event()
            self.loop.call_soon_threadsafe(self._stand_still, stands)
            stands.wait()

    def resume(self) -> None:
        self._moves.set()

    def _stand_still(self, stands: threading.Event) -> None:
        loop = self.loop
        if isinstance(loop, VirtualLoop):
            loop.is_held = True
        stands.set()
        self._moves.wait()
        if isinstance(loop, VirtualLoop):
            loop.is_held = False

    def _tell_to_end(self) -> None:
        self._must_end = True
        if self._stopped is not None:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._stopped.set)

    def run(self) -> None:
        broker_log.begin(self.kit.log)
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error  # before there was a broker; raised in the test
            self._ready.set()
        finally:
            broker_log.end()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        if self._must_end:
            self._stopped.set()
        broker = self._broker = self.kit.make_broker(
            self._config,
            self._metrics_address,
            sockets=self.wires.sockets,
            open_store=self._open_store,
        )
        try:
            await broker.startup()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self._failure = error
            await broker.shutdown()
            return
        finally:
            self._ready.set()
        beside = None if self._beside is None else asyncio.create_task(self._beside(broker))
        ends = [asyncio.ensure_future(each.wait()) for each in (self._stopped, broker.halted)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in (*ends, *(() if beside is None else (beside,))):
            each.cancel()
        if self._was_killed and broker.lifecycle.state is BrokerState.RUNNING:
            # The controller learns nothing of a broker that is killed.
            broker.lifecycle.move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        await broker.shutdown()
        await self._stopped.wait()  # a broker that stopped by itself can still be looked at
