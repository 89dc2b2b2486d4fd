"""Driver of a `ReplicaFetcher`: opens its connection, sends its requests, and wakes it in time.

A response goes to the fetcher on arrival, and the next request leaves from there, without a turn of the loop
in between. Changes while no step is in progress wait for the end of the turn. So a thousand partitions that
start following together are fetched together.
"""

from __future__ import annotations

import math
from typing import Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.scheduler import Background, Cancellable, Scheduler
from barnabas.replication.follower.connection import Connection, OpenConnection
from barnabas.replication.follower.replica_fetcher import ReplicaFetcher
from barnabas.replication.follower.steps import Rest, Send, Step, Sync
from barnabas.replication.partition.partition import Partition


class FetcherDriver:
    def __init__(
        self,
        fetcher: ReplicaFetcher,
        connect: OpenConnection,
        clock: Clock,
        scheduler: Scheduler,
        background: Background,
        config: BrokerConfig,
    ) -> None:
        self.fetcher = fetcher
        self._connect = connect
        self._now_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._background = background
        self._config = config
        self._connection: Connection | None = None
        self._timer: Cancellable | None = None
        self._is_busy = False
        """A step is in progress; its outcome leads to the next."""
        self._is_closed = False

    def follow(self, partition: Partition) -> None:
        self.fetcher.follow(partition)
        self._wake_in(0)

    def flushed(self, key: TopicPartition) -> None:
        if self.fetcher.flushed(key):
            self._wake_in(0)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    def _wake_in(self, delay_ms: float) -> None:
        if self._is_busy or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.after(delay_ms, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if not self._is_busy and not self._is_closed:
            self._perform(self.fetcher.next_step())

    def _perform(self, step: Step) -> None:
        self._is_busy = True
        try:
            self._begin(step)
        except Exception as error:  # noqa: BLE001 - the fetcher handles it
            self._failed(error)

    def _begin(self, step: Step) -> None:
        if isinstance(step, Send):
            assert self._connection is not None
            self._connection.post(
                step.request,
                step.response_class,
                step.version,
                answered=self._answered,
                failed=self._failed,
                timeout_ms=self._config.replica_socket_timeout_ms,
            )
        elif isinstance(step, Rest):
            self._is_busy = False
            if step.until_ms != math.inf:
                self._wake_in(max(step.until_ms - self._now_ms(), 0.0))
        elif isinstance(step, Sync):
            self._background.submit(step.run, self._synced, self._failed)
        else:
            self._connect(step.source, self._connected, self._failed)

    def _answered(self, answer: Any) -> None:
        if not self._is_closed:
            self._perform(self.fetcher.answered(answer))

    def _failed(self, error: BaseException) -> None:
        if not self._is_closed:
            self._perform(self.fetcher.lost(error))

    def _synced(self, errors: list[OSError | None]) -> None:
        if not self._is_closed:
            self._perform(self.fetcher.synced(errors))

    def _connected(self, connection: Connection) -> None:
        if self._is_closed:
            connection.close()
            return
        self._connection = connection
        self._perform(self.fetcher.connected(connection))
