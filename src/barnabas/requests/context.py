"""What a handler gets besides the request: who asked, the broker's parts, and a way to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from barnabas.coordinator.group.callers import Caller
from barnabas.core.ids import Uuid
from barnabas.core.limits import TURN_MS_MAX
from barnabas.network.exchange import Exchange
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import authorized_operations
from barnabas.security.acl.vocabulary import DENIED, Operation, ResourceType

T = TypeVar("T")

WAITING: Final = -1.0


class Finisher(Protocol):
    """Turns a handler's response into the answer; the dispatcher has one per API and version."""

    def finish(self, context: RequestContext, response: Any) -> None: ...
    def finish_unanswered(self, context: RequestContext) -> None: ...
    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None: ...
    def finish_in_slices(
        self,
        context: RequestContext,
        work: Generator[None, None, Any],
        waits: Callable[[], None] | None = None,
    ) -> None: ...
    def later(self) -> Awaitable[None]: ...
    def fail(self, context: RequestContext, error: Exception) -> None: ...


class RequestContext:
    """One request on its way to its answer."""

    __slots__ = (
        "_finisher",
        "api_version",
        "broker",
        "client_id",
        "converted",
        "correlation_id",
        "exchange",
        "is_exempt",
        "keeps_records",
        "request",
        "spent_ms",
        "started_ms",
        "throttle_ms",
        "turn_ms",
    )

    def __init__(
        self,
        broker: Services,
        exchange: Exchange,
        request: Any,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        started_ms: float,
        finisher: Finisher,
    ) -> None:
        self.broker = broker
        self.exchange = exchange
        self.request = request
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_ms = started_ms
        self.turn_ms = started_ms
        """Since when the handler has been at work on it; WAITING while it is not, and once it is answered."""
        self.spent_ms = 0.0
        """What the handler took in the turns before this one."""
        self.keeps_records = False
        """Of a Produce: its records are no views of the network's buffer any more."""
        self.throttle_ms = 0
        """How long the client is not to be read from once it is answered."""
        self.is_exempt = False
        """A broker asks, for the sake of the cluster: no quota counts."""
        self.converted: dict[int, Any] | None = None
        """Of a Produce with old messages: what a thread has made of them (`old_messages`)."""
        self._finisher = finisher

    def resume(self, now_ms: float) -> None:
        """The handler goes on with it; see `stopwatch`."""
        if self.turn_ms == WAITING:
            self.turn_ms = now_ms

    def pause(self, now_ms: float) -> None:
        """The request waits: for data, for replication, for the coordination store, for its next turn."""
        if self.turn_ms != WAITING:
            self.spent_ms += now_ms - self.turn_ms
            self.turn_ms = WAITING

    def spent_until(self, now_ms: float) -> float:
        """What the handler took so far, all turns together."""
        return self.spent_ms if self.turn_ms == WAITING else self.spent_ms + now_ms - self.turn_ms

    def caller(self) -> Caller:
        """Who asks, as the group coordinator notes it down: a client's address the Java way."""
        host = f"/{self.exchange.connection.peer_host}"
        return Caller(self.client_id or "", host, self.api_version, self._may_describe)

    def _may_describe(self, topic: str) -> bool:
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, audited=False)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic that has this id now; None if there is none. Newer requests name topics by
        id, the broker's own books are kept by name."""
        known = self.broker.metadata.topic_by_id(topic_id)
        return None if known is None else known.name

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, audited: bool = True
    ) -> bool:
        """Whether whoever asks may do this with the resource; see `Authorizer.allows`."""
        connection = self.exchange.connection
        return self.broker.authorizer.allows(
            connection.principal, connection.peer_host, operation, resource_type, name, audited=audited
        )

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise what somebody hears who may not."""
        if not self.allows(operation, resource_type, name):
            raise DENIED[resource_type](f"not authorized: {operation.name} on {resource_type.name} {name}")

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """What whoever asks may do with the resource, as bits."""
        connection = self.exchange.connection
        return authorized_operations(
            self.broker.authorizer, connection.principal, connection.peer_host, resource_type, name
        )

    def respond(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        self._finisher.finish(self, response)

    def respond_nothing(self) -> None:
        """Leave the request without an answer, as acks=0 asks for."""
        self._finisher.finish_unanswered(self)

    def fail(self, error: Exception) -> None:
        """Answer late with an error, in the shape that the API's row gives it."""
        self._finisher.fail(self, error)

    def answer_in_slices(
        self, work: Generator[None, None, Any], waits: Callable[[], None] | None = None
    ) -> None:
        """Answer with what `work` returns (None: it answers by itself), in as many turns as it needs.

        `waits` is called if one turn is not enough: the frame of the request is gone after it.
        """
        self._finisher.finish_in_slices(self, work, waits)

    async def spread(self, work: Generator[None, None, T]) -> T:
        """What `work` returns, for a handler that is a coroutine."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.breathe()

    async def breathe(self) -> None:
        """Stand aside for a while, if this handler has had its share of the turn."""
        now_ms = self.broker.clock.monotonic_ms()
        if now_ms - self.turn_ms > TURN_MS_MAX:
            self.pause(now_ms)
            await self._finisher.later()
            self.resume(self.broker.clock.monotonic_ms())

    def answer_with(self, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with what `work` returns, once it is done; the connection waits for it."""
        self._finisher.finish_later(self, work)
