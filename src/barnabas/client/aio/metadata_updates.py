"""Task that keeps the metadata cache fresh: on request, and after `metadata.max.age.ms`.

`request` asks for an update soon and returns at once: a producer calls it when a leader has moved. Requests
during an update count for the next one. After an update or a failure the next one waits for
`retry.backoff.ms`, doubled with each failure.

`until` waits for the update that makes a condition true. Reasons that no update can change are raised: the
topic's name is invalid, the client may not read it, the login failed.

Where no broker gives metadata for `metadata.recovery.rebootstrap.trigger.ms`, or a broker answers
REBOOTSTRAP_REQUIRED, the known brokers are forgotten. The client then begins with its bootstrap addresses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from barnabas.client.aio.background import OnFailure, background_task
from barnabas.client.aio.connections import closed
from barnabas.client.config.settings import ClientSettings
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.retries import BACKOFF
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, RebootstrapRequired, RequestTimedOut
from barnabas.protocol.messages.metadata import MetadataResponse

logger = logging.getLogger(__name__)

Refresh = Callable[[Collection[str] | None], Awaitable[MetadataResponse]]
"""Sends a Metadata request for these topics (None: all), whose answer goes into the cache."""


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    age_ms_max: float = 300_000
    backoff: Backoff = BACKOFF
    rebootstraps: bool = True
    rebootstrap_trigger_ms: float = 300_000

    @classmethod
    def of(cls, settings: ClientSettings) -> MetadataOptions:
        return cls(
            age_ms_max=settings.metadata_max_age_ms,
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
            rebootstraps=settings.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
        )


class MetadataUpdates:
    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        options: MetadataOptions,
        refresh: Refresh,
        forget_brokers: Callable[[], None],
    ) -> None:
        self.metadata = metadata
        self.on_update: list[Callable[[], None]] = []
        """Called after each update."""
        self._clock = clock
        self._options = options
        self._refresh = refresh
        self._forget_brokers = forget_brokers
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._on_failure: OnFailure | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._failure: Exception | None = None
        """Reason of the last failed update."""
        self._fails_since_ms: float | None = None
        self._is_stopped = False

    def start(self, on_failure: OnFailure | None = None) -> None:
        """Start the task, once. `on_failure` receives an unexpected error, as the waiting callers do."""
        if self._task is None:
            self._on_failure = on_failure
            self._task = background_task(self._run(), self._ended)

    def _ended(self, error: BaseException) -> None:
        logger.error("metadata: the updates of this client have ended: %r", error)
        self._wake(error)
        if self._on_failure is not None:
            self._on_failure(error)

    async def stop(self) -> None:
        """Stop the task, and end the calls of `until`."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._wake(None)

    def request(self) -> None:
        """Ask for an update soon."""
        self._requested.set()

    async def until(self, is_met: Callable[[], bool], timeout_ms: float, subject: str) -> None:
        """Wait for the metadata that makes `is_met` true. REQUEST_TIMED_OUT names `subject`; a failure that
        no update changes is raised at once, and `ClientClosed` after `stop`.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not is_met():
            if self._is_stopped:
                raise closed()
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                because = "" if self._failure is None else f": {self._failure}"
                raise RequestTimedOut(f"no metadata for {subject} within {timeout_ms:.0f} ms{because}")
            self.request()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                async with asyncio.timeout(left_ms / 1_000):
                    await waiter
            except TimeoutError:
                continue
            finally:
                self._waiters.discard(waiter)

    async def _run(self) -> None:
        failures = 0
        while True:
            age_ms = self._clock.monotonic_ms() - self.metadata.refreshed_ms
            try:
                async with asyncio.timeout(max(0.0, self._options.age_ms_max - age_ms) / 1_000):
                    await self._requested.wait()
            except TimeoutError:
                pass
            self._requested.clear()
            failures = 0 if await self._update() else failures + 1
            pause_ms = self._options.backoff.after_ms(max(0, failures - 1))
            await asyncio.sleep(pause_ms / 1_000)

    async def _update(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        try:
            await self._refresh(self.metadata.topics_to_ask(now_ms))
        except (KafkaError, ClusterUnreachable) as error:
            self._failed(error)
            return False
        self._failure = self._fails_since_ms = None
        for notify in self.on_update:
            notify()
        self._wake(None)
        return True

    def _failed(self, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        self._failure = error
        if self._fails_since_ms is None:
            self._fails_since_ms = now_ms
            logger.warning("metadata: no broker answers: %s", error)
        late = now_ms - self._fails_since_ms >= self._options.rebootstrap_trigger_ms
        if self._options.rebootstraps and (late or isinstance(error, RebootstrapRequired)):
            logger.info("metadata: begin again with the bootstrap addresses")
            self._forget_brokers()
        self._requested.set()
        if (
            isinstance(error, KafkaError)
            and not error.retriable
            and not isinstance(error, RebootstrapRequired)
        ):
            self._wake(error)

    def _wake(self, error: BaseException | None) -> None:
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
