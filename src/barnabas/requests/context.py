"""Request context: the client, the broker's parts and the means to respond."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from barnabas.coordinator.group.state.client_info import Caller
from barnabas.core.bounds.budget import Budget
from barnabas.core.bounds.kept_memory import MemoryOwner
from barnabas.core.errors import RequestTimedOut
from barnabas.core.ids import Uuid
from barnabas.core.limits import REQUEST_LOOP_MS_MAX, TURN_MS_MAX
from barnabas.core.steps import Sliced, advance
from barnabas.network.transport.exchange import Exchange
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import authorized_operations
from barnabas.security.acl.vocabulary import DENIED, OPERATIONS, Operation, ResourceType

T = TypeVar("T")

WAITING: Final = -1.0


class Finisher(Protocol):
    """Encodes a handler's response; the dispatcher has one per API and version."""

    def finish(self, context: RequestContext, response: Any) -> None: ...
    def finish_unanswered(self, context: RequestContext) -> None: ...
    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None: ...
    def finish_in_slices(
        self,
        context: RequestContext,
        work: Sliced[Any],
        waits: Callable[[], None] | None = None,
    ) -> None: ...
    def later(self) -> Awaitable[None]: ...
    def fail(self, context: RequestContext, error: Exception) -> None: ...


class RequestContext:
    """One request on its way to its response."""

    __slots__ = (
        "_budget",
        "_finisher",
        "api_version",
        "broker",
        "charged_ms",
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
        """Start of the handler's current turn; WAITING between turns, and after the response."""
        self.spent_ms = 0.0
        """Time of the turns before this one, decoding included."""
        self.charged_ms = 0.0
        """Time that is already charged to the client's quota."""
        self.keeps_records = False
        """Of a Produce: its records are copied, and no longer views of the receive buffer."""
        self.throttle_ms = 0
        """Time for which the connection is not read after the response."""
        self.is_exempt = False
        """Whether the request comes from a broker, for the cluster: quotas do not apply."""
        self.converted: dict[int, Any] | None = None
        """Of a Produce with old messages: results of the conversion in a thread
        (`handlers.shared.up_conversion`)."""
        self._finisher = finisher
        self._budget: Budget | None = None

    @property
    def budget(self) -> Budget:
        """Work that the request may cause; created when a part first spends of it."""
        if self._budget is None:
            self._budget = Budget()
        return self._budget

    def resume(self, now_ms: float) -> None:
        """Start of a handler's turn; see `request_time`."""
        if self.turn_ms == WAITING:
            self.turn_ms = now_ms

    def pause(self, now_ms: float) -> None:
        """End of a turn: the request waits for data, replication, the coordination store or its next turn."""
        if self.turn_ms != WAITING:
            self.spent_ms += now_ms - self.turn_ms
            self.turn_ms = WAITING

    def spent_until(self, now_ms: float) -> float:
        """Time of the handler so far, over all turns."""
        return self.spent_ms if self.turn_ms == WAITING else self.spent_ms + now_ms - self.turn_ms

    def caller(self) -> Caller:
        """The client as the group coordinator stores it: its address in Java's form."""
        host = f"/{self.exchange.connection.peer_host}"
        return Caller.of(self.client_id, host, self.api_version, self._may_describe, self.memory_owner())

    def memory_owner(self) -> MemoryOwner:
        """The client that is charged for state which outlives this request."""
        connection = self.exchange.connection
        return MemoryOwner(connection.principal.name, connection.connection_id)

    def _may_describe(self, topic: str) -> bool:
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, audited=False)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Name of the topic that has this id; None if there is none.

        Newer requests name topics by id, while the broker's tables are keyed by name.
        """
        known = self.broker.metadata.topic_by_id(topic_id)
        return None if known is None else known.name

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, audited: bool = True
    ) -> bool:
        """Whether the client has the right to the resource; see `Authorizer.allows`."""
        authorizer = self.broker.authorizer
        if not authorizer.allows_everything:
            self.budget.spend_names()
        connection = self.exchange.connection
        return authorizer.allows(
            connection.principal, connection.peer_host, operation, resource_type, name, audited=audited
        )

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the authorization error of the resource type, unless the client has the right."""
        if not self.allows(operation, resource_type, name):
            raise DENIED[resource_type](f"not authorized: {operation.name} on {resource_type.name} {name}")

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Operations that the client may perform on the resource, as bits."""
        authorizer = self.broker.authorizer
        if not authorizer.allows_everything:
            self.budget.spend_names(len(OPERATIONS[resource_type]))
        connection = self.exchange.connection
        return authorized_operations(
            authorizer, connection.principal, connection.peer_host, resource_type, name
        )

    def respond(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        self._finisher.finish(self, response)

    def respond_nothing(self) -> None:
        """Finish the request without a response, as acks=0 demands."""
        self._finisher.finish_unanswered(self)

    def fail(self, error: Exception) -> None:
        """Respond late with an error, in the form that the API's row gives it."""
        self._finisher.fail(self, error)

    def answer_in_slices(self, work: Sliced[Any], waits: Callable[[], None] | None = None) -> None:
        """Respond with the result of `work` (None: it responds on its own), in as many turns as it needs.

        `waits` is called if one turn is not enough: the frame of the request is gone after it.
        """
        self._finisher.finish_in_slices(self, work, waits)

    async def spread(self, work: Sliced[T]) -> T:
        """Result of `work`, for a handler that is a coroutine. Many short pieces of work are as long as one
        long piece, so others may have their turn before each."""
        await self.breathe()
        while (ended := advance(work)) is None:
            await self.breathe()
        return ended.result

    async def breathe(self) -> None:
        """Let other requests run, if this handler has used up its share of the turn."""
        now_ms = self.broker.clock.monotonic_ms()
        if now_ms - self.turn_ms > TURN_MS_MAX:
            self.pause(now_ms)
            if self.spent_ms > REQUEST_LOOP_MS_MAX:
                raise RequestTimedOut(f"the request took {REQUEST_LOOP_MS_MAX:.0f} ms of the broker")
            await self._finisher.later()
            self.resume(self.broker.clock.monotonic_ms())

    def answer_with(self, work: Coroutine[Any, Any, Any]) -> None:
        """Respond with the result of `work` once it is done; the connection waits."""
        self._finisher.finish_later(self, work)
