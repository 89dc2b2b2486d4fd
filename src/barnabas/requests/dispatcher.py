"""From a frame to a handler and back.

For each (API, version) the dispatcher keeps a `Binding`: decoder, handler and metrics, found
once and reused.

What goes wrong with a request as a whole is sorted here; what goes wrong with one element of
it has its own answer, in the handler (`failures`):

- A frame that cannot be understood (unknown key or version, malformed body) closes the
  connection, as Apache Kafka does. ApiVersions is the exception: an unsupported version is
  answered in version 0, so that every client finds a common language.
- A `KafkaError` becomes the error code of the response.
- Anything else is a bug: it is logged with its traceback and answered UNKNOWN_SERVER_ERROR.
- A handler that cannot be imported costs the connection, and the next request tries again.

No frame may stop the loop, whatever is in it. A message of many elements is read and written
in `slices`, and so is it handled where the handler is a generator; the connection is held
meanwhile, so that its requests keep their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.core.clock import Clock
from barnabas.core.metrics import Metrics
from barnabas.core.tasks import Tasks
from barnabas.network.exchange import Exchange, Part
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import LargeMessage, MalformedMessage
from barnabas.protocol.headers import (
    encode_response,
    encode_response_in_slices,
    request_header_fields,
    response_encoder,
)
from barnabas.protocol.messages import request_class, response_class
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.requests.access import check_guards, guards
from barnabas.requests.context import WAITING, RequestContext
from barnabas.requests.failures import as_kafka_error
from barnabas.requests.refusals import refusal
from barnabas.requests.registry import Api, ApiTable
from barnabas.requests.services import Services
from barnabas.requests.slices import Slices, Work
from barnabas.requests.stopwatch import Measured

logger = logging.getLogger(__name__)


class Binding:
    """One API in one version, ready to run."""

    __slots__ = (
        "_local_time",
        "_now_ms",
        "_quotas",
        "_remote_time",
        "_responses",
        "_slices",
        "_tasks",
        "_total_time",
        "api",
        "decode",
        "guards",
        "handle",
        "is_async",
        "is_between_brokers",
        "is_sliced",
        "name",
        "queue_time",
        "requests",
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
    ) -> None:
        request = request_class(api.key)
        name = request.__name__.removesuffix("Request")
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
        self.requests = metrics.counter(
            "kafka_requests_total", "Requests received.", api=name, version=str(version)
        )
        self.queue_time = metrics.histogram(
            "kafka_request_queue_time_ms", "From the arrival of a request to its handler.", api=name
        )
        self._local_time = metrics.histogram(
            "kafka_request_local_time_ms", "In the handler, all its turns together.", api=name
        )
        self._remote_time = metrics.histogram(
            "kafka_request_remote_time_ms",
            "Waiting in the purgatory, for the coordination store or for the next turn.",
            api=name,
        )
        self._total_time = metrics.histogram(
            "kafka_request_total_time_ms", "From the arrival of a request to its answer.", api=name
        )

    def finish(self, context: RequestContext, response: Any) -> None:
        """Encode and send; inline answers and late ones alike come through here."""
        if self._quotas.is_limiting:
            self._throttle(context, response)
        try:
            parts = self._responses.encode(context.correlation_id, response)
        except LargeMessage:
            self._slices.run(
                encode_response_in_slices(context.correlation_id, response, self.version),
                lambda parts: self._send(context, parts),
                lambda error: self._give_up(context, error),
                context.exchange.hold,
                context,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would answer
            self._give_up(context, error)
        else:
            context.exchange.respond(parts)
            self._observe(context)

    def _send(self, context: RequestContext, parts: list[Part]) -> None:
        context.exchange.respond(parts)
        self._observe(context)

    def _give_up(self, context: RequestContext, error: Exception) -> None:
        """Nobody above would answer: a late answer comes from a purgatory, not from the network."""
        logger.error("the answer of %s v%d cannot be encoded", self.name, self.version, exc_info=error)
        context.exchange.close("the answer cannot be encoded")

    def finish_unanswered(self, context: RequestContext) -> None:
        """The request is done, and whoever sent it wants to hear nothing of it."""
        if self._quotas.is_limiting:
            self._throttle(context, None)
        context.exchange.respond_nothing()
        self._observe(context)

    def _throttle(self, context: RequestContext, response: Any) -> None:
        """Charge the client for the time that its request took, and read no more of it while it is above a
        quota. The answer says for how long; it leaves at once (KIP-219)."""
        if context.is_exempt:
            return
        connection = context.exchange.connection
        spent_ms = context.spent_until(self._now_ms())
        throttle_ms = max(
            context.throttle_ms,
            self._quotas.charge_time(connection.principal.name, context.client_id, spent_ms),
        )
        if throttle_ms:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            connection.throttle(throttle_ms)

    def _observe(self, context: RequestContext) -> None:
        now_ms = self._now_ms()
        context.pause(now_ms)
        spent_ms = context.spent_ms
        self._local_time.observe(spent_ms)
        self._total_time.observe(now_ms - context.exchange.received_ms)
        waited_ms = now_ms - context.started_ms - spent_ms
        if waited_ms > 0:
            self._remote_time.observe(waited_ms)

    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` to its end, then answer with its result; the connection is held meanwhile."""
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
        self, context: RequestContext, work: Work, waits: Callable[[], None] | None = None
    ) -> None:
        """Run `work` in this turn and those that it needs, then answer with what it returns."""

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
        """When a coroutine may go on that has had its share of a turn."""
        return self._slices.later()

    def _finish_work(self, context: RequestContext, response: Any) -> None:
        if response is None:
            context.pause(self._now_ms())
        else:
            self.finish(context, response)

    def fail(self, context: RequestContext, error: Exception) -> None:
        """Answer with an error that the handler let escape."""
        error = as_kafka_error(error, f"{self.name} v{self.version}")
        refused = self.api.refused or refusal
        self.finish(context, refused(context.request, error, self.version))


class Dispatcher:
    """Give `dispatch` to the network; it runs requests inline, in the order of arrival."""

    def __init__(self, apis: ApiTable, broker: Services, clock: Clock, metrics: Metrics) -> None:
        self._apis = apis
        self._broker = broker
        self._clock = clock
        self._now_ms = clock.monotonic_ms
        self._metrics = metrics
        self._bindings: dict[tuple[int, int], Binding] = {}
        self._tasks = Tasks()
        self._slices = Slices(clock)

    def dispatch(self, exchange: Exchange, frame: memoryview) -> None:
        binding = None
        try:
            api_key, version, correlation_id, client_id, body_position = request_header_fields(frame)
            binding = self._bindings.get((api_key, version)) or self._bind(api_key, version)
            if binding is None:
                self._refuse(exchange, api_key, version, correlation_id)
                return
            request, _ = binding.decode(frame, body_position)
        except MalformedMessage as error:
            exchange.close(f"malformed request: {error}")
            return
        except LargeMessage:
            assert binding is not None
            self._read_in_slices(
                exchange, exchange.keep(frame), body_position, correlation_id, client_id, binding
            )
            return
        self._handle(request, exchange, correlation_id, client_id, binding)

    def _read_in_slices(
        self,
        exchange: Exchange,
        frame: memoryview,
        body_position: int,
        correlation_id: int,
        client_id: str | None,
        binding: Binding,
    ) -> None:
        decode = request_class(binding.api.key).sliced_decoder(binding.version)
        self._slices.run(
            decode(frame, body_position, binding.api.elements_max),
            lambda read: self._handle(read[0], exchange, correlation_id, client_id, binding),
            lambda error: exchange.close(f"malformed request: {error}"),
            exchange.hold,
        )

    def _handle(
        self, request: Any, exchange: Exchange, correlation_id: int, client_id: str | None, binding: Binding
    ) -> None:
        started_ms = self._now_ms()
        binding.requests.value += 1
        binding.queue_time.observe(started_ms - exchange.received_ms)
        context = RequestContext(
            self._broker, exchange, request, binding.version, correlation_id, client_id, started_ms, binding
        )
        try:
            if binding.guards:
                check_guards(binding.guards, request, context)
                context.is_exempt = binding.is_between_brokers  # who only pretends to be a broker is not
            response = binding.handle(request, context)
        except Exception as error:  # noqa: BLE001 - the one place where errors become answers
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
        """Stop the handlers that still wait for the coordination store."""
        self._slices.close()
        await self._tasks.close()

    def _bind(self, api_key: int, version: int) -> Binding | None:
        api = self._apis.get(api_key, version)
        if api is None:
            return None
        binding = Binding(
            api, version, self._clock, self._metrics, self._tasks, self._slices, self._broker.quotas
        )
        self._bindings[api_key, version] = binding
        return binding

    def _refuse(self, exchange: Exchange, api_key: int, version: int, correlation_id: int) -> None:
        if api_key == ApiKey.API_VERSIONS:
            exchange.respond(encode_response(correlation_id, self._apis.unsupported_version(), 0))
        else:
            exchange.close(f"API key {api_key} version {version} is not served here")
