"""Code that waits in a thread of its own, on virtual time.

The tasks of a pipeline's sink ask the cluster and wait for the answer, in their thread. Here such code has a
thread, too, but never runs beside the loop: while it computes the loop stands still, and while it waits the
loop does what it asked for. So a run is as repeatable as any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps
from pyspark_barnabas.shared.cluster import Cluster

T = TypeVar("T")


class Abandoned(BaseException):
    """The waiter for the thread is gone."""


class HandedOver(Cluster):
    """A cluster as blocking code knows it, whose conversations are carried on by a loop."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.state = cluster.state
        self.clock = cluster.clock
        self._client = cluster
        self._to_thread = threading.Semaphore(0)
        self._to_loop = threading.Semaphore(0)
        self._asked: Steps[Any] | Coroutine[Any, Any, Any] | None = None
        self._answer: Any = None
        self._error: BaseException | None = None

    def run(self, steps: Steps[T]) -> T:
        """In the thread."""
        return self._hand_over(steps)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """In the thread: what is no conversation with the cluster alone."""
        return self._hand_over(work)

    def _hand_over(self, asked: Steps[T] | Coroutine[Any, Any, T]) -> T:
        self._asked = asked
        self._to_loop.release()
        self._to_thread.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        answer: T = self._answer
        return answer

    async def call(self, function: Callable[[], T]) -> T:
        """On the loop: the function's outcome."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                outcome.append(function())
            except BaseException as error:
                failure.append(error)
            self._to_loop.release()

        threading.Thread(target=work, daemon=True).start()
        while True:
            self._to_loop.acquire()
            if failure:
                raise failure[0]
            if outcome:
                return outcome[0]
            await self._carry_out()
            self._to_thread.release()

    async def _carry_out(self) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            if isinstance(asked, Coroutine):
                self._answer = await asked
            else:
                self._answer = await self._client.run(asked)
        except Exception as error:
            self._error = error
        except BaseException:
            self._error = Abandoned()
            self._to_thread.release()
            raise
