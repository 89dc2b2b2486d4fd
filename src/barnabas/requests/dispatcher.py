"""Request dispatcher: from a frame to a handler and back.

For each (API, version) the dispatcher keeps a `Binding`: decoder, handler and metrics, looked up once and
reused.

The dispatcher handles failures of a request as a whole. A failure of one element is answered in the handler
(`requests.errors`).

- A frame that cannot be decoded (unknown key or version, malformed body) closes the connection, as in Apache
  Kafka. ApiVersions is the exception: an unsupported version gets a version 0 response, so that client and
  broker find a common version.
- A `KafkaError` becomes the error code of the response.
- Any other exception is a bug: it is logged with its traceback and answered UNKNOWN_SERVER_ERROR.
- A handler that cannot be imported closes the connection, and the next request tries again.

No frame may block the loop. A message of many elements is decoded and encoded in slices
(`time_slicing`), and handled in slices where the handler is a generator. The connection is held meanwhile, so
that its requests keep their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.limits import ANSWER_BYTES_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.steps import Sliced
from barnabas.core.tasks import Tasks
from barnabas.network.transport.exchange import Exchange, Part
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import LargeMessage, MalformedMessage
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.headers import (
    encode_response,
    encode_response_in_slices,
    request_header_fields,
    response_encoder,
)
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.requests.access import check_guards, guards
from barnabas.requests.context import WAITING, RequestContext
from barnabas.requests.default_error_response import refusal
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api, ApiTable
from barnabas.requests.request_time import DecodingWatch, Measured
from barnabas.requests.services import Services
from barnabas.requests.time_slicing import Slices

logger = logging.getLogger(__name__)


class Binding:
    """One API in one version, ready to run."""

    __slots__ = (
        "_limited_log",
        "_local_time",
        "_now_ms",
        "_quotas",
        "_remote_time",
        "_responses",
        "_slices",
        "_tasks",
        "api",
        "decode",
        "guards",
        "handle",
        "is_async",
        "is_between_brokers",
        "is_sliced",
        "name",
        "of_followers",
        "queue_time",
        "requests",
        "total_time",
        "version",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        clock: Clock,
        metrics: Metrics,
        tasks: Tasks,
        slices: Slices,
        quotas: ClientQuotas,
        limited_log: RateLimitedLogger,
        name: str = "",
    ) -> None:
        request = request_class(api.key)
        name = name or request.__name__.removesuffix("Request")
        self.of_followers: Binding | None = None
        """Of Fetch: the same with the metrics of followers."""
        self.name = name
        self.api = api
        self.version = version
        self.handle = api.handle
        self.guards = guards(api.key, version)
        self.is_async = api.is_async
        self.is_between_brokers = api.is_between_brokers
        self.is_sliced = api.is_sliced
        self.decode = request.bounded_decoder(version)
        self._responses = response_encoder(response_class(api.key), version)
        self._now_ms = clock.monotonic_ms
        self._tasks = tasks
        self._slices = slices
        self._quotas = quotas
        self._limited_log = limited_log
        self.requests = metrics.counter(
            "kafka_requests_total", "Requests received.", api=name, version=str(version)
        )
        self.queue_time = metrics.histogram(
            "kafka_request_queue_time_ms", "From the arrival of a request to its handler.", api=name
        )
        self._local_time = metrics.histogram(
            "kafka_request_local_time_ms", "Time in the handler, over all its turns.", api=name
        )
        self._remote_time = metrics.histogram(
            "kafka_request_remote_time_ms",
            "Time in the purgatory, waiting for the coordination store or for the next turn.",
            api=name,
        )
        self.total_time = metrics.histogram(
            "kafka_request_total_time_ms",
            "From the arrival of a request until its response is given to the socket.",
            api=name,
        )

    def finish(self, context: RequestContext, response: Any) -> None:
        """Encode and send the response; inline and late responses both come through here."""
        if self._quotas.is_limiting:
            self._throttle(context, response)
        try:
            parts = self._responses.encode(context.correlation_id, response)
        except LargeMessage:
            self._encode_in_slices(context, response, self._refuse_large)
        except Exception as error:  # noqa: BLE001 - no caller answers
            self._give_up(context, error)
        else:
            context.exchange.respond(parts)
            self._observe(context)

    def _encode_in_slices(
        self, context: RequestContext, response: Any, failed: Callable[[RequestContext, Exception], None]
    ) -> None:
        self._slices.run(
            encode_response_in_slices(
                context.correlation_id, response, self.version, context.budget.spend_answer
            ),
            lambda parts: self._send(context, parts),
            lambda error: failed(context, error),
            context.exchange.hold,
            context,
        )

    def _send(self, context: RequestContext, parts: list[Part]) -> None:
        context.exchange.respond(parts)
        self._observe(context)

    def _refuse_large(self, context: RequestContext, error: Exception) -> None:
        """Respond with the error, if the response exceeded its budget or took too long to encode."""
        if not isinstance(error, KafkaError):
            self._give_up(context, error)
            return
        context.budget.answer_bytes = ANSWER_BYTES_MAX
        self._refuse(context, error, lambda refused: self._encode_in_slices(context, refused, self._give_up))

    def _refuse(self, context: RequestContext, error: KafkaError, done: Callable[[Any], None]) -> None:
        """Build the error response, in slices where it has many elements."""
        refused = (self.api.refused or refusal)(context.request, error, self.version)
        if not isinstance(refused, Generator):
            done(refused)
            return
        self._slices.run(
            refused, done, lambda error: self._give_up(context, error), context.exchange.hold, context
        )

    def _give_up(self, context: RequestContext, error: Exception) -> None:
        """Close the connection: a late response comes from a purgatory, so no caller answers."""
        self._limited_log.error(
            "unencodable", "the response of %s v%d cannot be encoded", self.name, self.version, cause=error
        )
        context.exchange.close("a response cannot be encoded")

    def finish_unanswered(self, context: RequestContext) -> None:
        """Finish a request whose client expects no response."""
        if self._quotas.is_limiting:
            self._throttle(context, None)
        context.exchange.respond_nothing()
        self._observe(context)

    def _throttle(self, context: RequestContext, response: Any) -> None:
        """Charge the client's request quota, and stop reading from it while it is above a quota.

        The response carries the throttle time and leaves at once (KIP-219).
        """
        if context.is_exempt:
            return
        connection = context.exchange.connection
        throttle_ms = max(context.throttle_ms, self._charge(context, context.spent_until(self._now_ms())))
        if throttle_ms:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            connection.throttle(throttle_ms)

    def _charge(self, context: RequestContext, spent_ms: float) -> int:
        """Throttle time for the handler's time since the last charge."""
        owed_ms = spent_ms - context.charged_ms
        context.charged_ms = spent_ms
        principal = context.exchange.connection.principal
        return self._quotas.charge_time(principal.name, context.client_id, owed_ms)

    def _observe(self, context: RequestContext) -> None:
        now_ms = self._now_ms()
        context.pause(now_ms)
        spent_ms = context.spent_ms
        if self._quotas.is_limiting and not context.is_exempt:
            # The time to encode, which no field of the response can carry any more.
            throttle_ms = self._charge(context, spent_ms)
            if throttle_ms:
                context.exchange.connection.throttle(throttle_ms)
        self._local_time.observe(spent_ms)
        waited_ms = now_ms - context.started_ms - spent_ms
        if waited_ms > 0:
            self._remote_time.observe(waited_ms)

    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` to its end, then respond with its result; the connection is held meanwhile."""
        context.exchange.hold()
        context.pause(self._now_ms())
        self._tasks.start(self._run(context, work))

    async def _run(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
        try:
            response = await Measured(work, context, self._now_ms)
        except asyncio.CancelledError:
            context.exchange.close("the broker is shutting down")
            raise
        except Exception as error:  # noqa: BLE001 - errors become answers
            self.fail(context, error)
        else:
            self._finish_work(context, response)

    def finish_in_slices(
        self, context: RequestContext, work: Sliced[Any], waits: Callable[[], None] | None = None
    ) -> None:
        """Run `work` in this turn and as many more as it needs, then respond with its result."""

        def hold() -> None:
            context.exchange.hold()
            if waits is not None:
                waits()

        self._slices.run(
            work,
            lambda response: self._finish_work(context, response),
            lambda error: self.fail(context, error),
            hold,
            context,
        )

    def later(self) -> asyncio.Future[None]:
        """Done when a coroutine that has used up its share of a turn may continue."""
        return self._slices.later()

    def _finish_work(self, context: RequestContext, response: Any) -> None:
        if response is None:
            context.pause(self._now_ms())
        else:
            self.finish(context, response)

    def fail(self, context: RequestContext, error: Exception) -> None:
        """Respond with an error that the handler raised."""
        self._refuse(
            context,
            as_kafka_error(error, f"{self.name} v{self.version}"),
            lambda refused: self.finish(context, refused),
        )


def _is_from_follower(request: Any) -> bool:
    replica = request.replica_state
    return bool((request.replica_id if replica is None else replica.replica_id) >= 0)


class Dispatcher:
    """Runs requests inline, in the order of arrival; the network calls `dispatch`."""

    def __init__(self, apis: ApiTable, broker: Services, clock: Clock, metrics: Metrics) -> None:
        self._apis = apis
        self._broker = broker
        self._clock = clock
        self._now_ms = clock.monotonic_ms
        self._metrics = metrics
        self._bindings: dict[tuple[int, int], Binding] = {}
        self._tasks = Tasks()
        self._slices = Slices(clock)
        self._limited_log = RateLimitedLogger(logger, clock)

    def dispatch(self, exchange: Exchange, frame: memoryview) -> None:
        binding = None
        client_id = None
        started_ms = self._now_ms()
        try:
            api_key, version, correlation_id, client_id, body_position = request_header_fields(frame)
            binding = self._bindings.get((api_key, version)) or self._bind(api_key, version)
            if binding is None:
                self._refuse(exchange, api_key, version, correlation_id)
                return
            request, _ = binding.decode(frame, body_position)
        except MalformedMessage as error:
            self._refuse_malformed(exchange, error, client_id, self._now_ms() - started_ms)
            return
        except LargeMessage:
            assert binding is not None
            self._read_in_slices(
                exchange, exchange.keep(frame), body_position, correlation_id, client_id, binding, started_ms
            )
            return
        self._handle(request, exchange, correlation_id, client_id, binding, started_ms)

    def _read_in_slices(
        self,
        exchange: Exchange,
        frame: memoryview,
        body_position: int,
        correlation_id: int,
        client_id: str | None,
        binding: Binding,
        started_ms: float,
    ) -> None:
        decode = request_class(binding.api.key).sliced_decoder(binding.version)
        watch = DecodingWatch(started_ms)

        def decoded(read: tuple[Any, int]) -> None:
            self._handle(read[0], exchange, correlation_id, client_id, binding, started_ms, watch)

        def failed(error: Exception) -> None:
            watch.pause(self._now_ms())
            self._refuse_malformed(exchange, error, client_id, watch.spent_ms)

        self._slices.run(
            decode(frame, body_position, binding.api.elements_max), decoded, failed, exchange.hold, watch
        )

    def _refuse_malformed(
        self, exchange: Exchange, error: Exception, client_id: str | None, spent_ms: float
    ) -> None:
        """Close the connection, with a delay if its client is above its request quota.

        A client whose connection closes at once reconnects and sends the next such request, so no quota would
        slow it down. Until the connection closes it counts against the limits of its address.
        """
        reason = f"malformed request: {error}"
        quotas, connection = self._broker.quotas, exchange.connection
        throttle_ms = 0
        if quotas.is_limiting:
            throttle_ms = quotas.charge_time(connection.principal.name, client_id, spent_ms)
        if not throttle_ms:
            exchange.close(reason)
            return
        exchange.hold()
        self._tasks.start(self._close_later(exchange, reason, throttle_ms))

    async def _close_later(self, exchange: Exchange, reason: str, delay_ms: int) -> None:
        try:
            await asyncio.sleep(delay_ms / 1_000)
        finally:
            exchange.close(reason)

    def _handle(
        self,
        request: Any,
        exchange: Exchange,
        correlation_id: int,
        client_id: str | None,
        binding: Binding,
        started_ms: float,
        decoding: DecodingWatch | None = None,
    ) -> None:
        if binding.of_followers is not None and _is_from_follower(request):
            binding = binding.of_followers
        binding.requests.value += 1
        exchange.total_time = binding.total_time
        binding.queue_time.observe(started_ms - exchange.received_ms)
        context = RequestContext(
            self._broker, exchange, request, binding.version, correlation_id, client_id, started_ms, binding
        )
        if decoding is not None:
            context.turn_ms = self._now_ms()
            decoding.pause(context.turn_ms)
            context.spent_ms = decoding.spent_ms
        try:
            if binding.guards:
                check_guards(binding.guards, request, context)
                context.is_exempt = (
                    binding.is_between_brokers
                )  # a client that sends a broker's API is not exempt
            response = binding.handle(request, context)
        except Exception as error:  # noqa: BLE001 - the one place where errors become responses
            binding.fail(context, error)
            return
        if response is None:
            if context.turn_ms != WAITING:  # it is not answered yet
                context.pause(self._now_ms())
        elif binding.is_async:
            binding.finish_later(context, response)
        elif binding.is_sliced:
            binding.finish_in_slices(context, response)
        else:
            binding.finish(context, response)

    async def close(self) -> None:
        """Cancel the handlers that still wait for the coordination store."""
        self._slices.close()
        await self._tasks.close()

    def _bind(self, api_key: int, version: int) -> Binding | None:
        api = self._apis.get(api_key, version)
        if api is None:
            return None
        if api_key == ApiKey.FETCH:
            binding = self._make_binding(api, version, "FetchConsumer")
            binding.of_followers = self._make_binding(api, version, "FetchFollower")
        else:
            binding = self._make_binding(api, version)
        self._bindings[api_key, version] = binding
        return binding

    def _make_binding(self, api: Api, version: int, name: str = "") -> Binding:
        return Binding(
            api,
            version,
            self._clock,
            self._metrics,
            self._tasks,
            self._slices,
            self._broker.quotas,
            self._limited_log,
            name,
        )

    def _refuse(self, exchange: Exchange, api_key: int, version: int, correlation_id: int) -> None:
        if api_key == ApiKey.API_VERSIONS:
            exchange.respond(encode_response(correlation_id, self._apis.unsupported_version(), 0))
        else:
            exchange.close(f"API key {api_key} version {version} is not served here")
