"""Fault layer between the network and the dispatcher of a test's broker.

A broker outside of tests has no such layer, so rules cost it nothing. A request that no rule hits passes
unchanged. For one that is hit, the dispatcher gets an exchange of its own, whose connection is a
`_HitConnection`. The layer changes or drops the response, and the real connection does everything else.

**Errors for single partitions.** The selected partitions are taken out of the request, and the broker handles
the others. The error responses are merged into its response.

**Half a response.** The size in front of a response says more bytes than follow. The connection closes behind
them.

**Fetch sessions.** An incremental Fetch does not name its partitions. While a rule selects topics of Fetch,
the layer ends the client's session (FETCH_SESSION_ID_NOT_FOUND) and opens none, as a broker without free
slots does. Clients then name every partition in every Fetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.core.errors import FetchSessionIdNotFound, KafkaError
from barnabas.core.ids import Uuid
from barnabas.core.regions import FileRegion
from barnabas.core.steps import run_to_end
from barnabas.handlers import APIS
from barnabas.network.transport.exchange import AnswerSink, Dispatch, Exchange, Loan, Part
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema.headers import (
    encode_request,
    encode_response_in_slices,
    read_request_header,
    read_response_header,
)
from barnabas.protocol.schema.message import Message
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.testing.asking.inspection import CLIENT_ID
from barnabas.testing.faults.actions import Actions, applies
from barnabas.testing.faults.refusing import is_of_whole, refused, refused_elements
from barnabas.testing.faults.request_log import RequestLog
from barnabas.testing.faults.rules import FaultRule, Faults
from barnabas.testing.faults.selection import merge, places_in, replace

logger = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """One request, decoded."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Any

    def frame(self) -> memoryview:
        parts = encode_request(self.api_key, self.version, self.correlation_id, self.client_id, self.message)
        return memoryview(bytearray(_joined(parts)))

    def refused(self, error: KafkaError, *, is_of_elements: bool = False) -> Message:
        """Response that refuses everything that the request names; with `is_of_elements`, each partition."""
        make = refused_elements if is_of_elements else refused
        return make(self.message, error, self.version)

    def encoded(self, answer: Message) -> list[Part]:
        parts: list[Part] = run_to_end(
            encode_response_in_slices(self.correlation_id, answer, self.version, lambda _: None)
        )
        return parts

    def decoded(self, parts: Sequence[Part]) -> Message:
        frame = memoryview(_joined(parts))
        _, position = read_response_header(frame, self.api_key, self.version)
        message, _ = response_class(self.api_key).decoder(self.version)(frame, position)
        return message


class FaultLayer:
    """Dispatch that applies the rules of a test, and remembers what clients asked."""

    def __init__(
        self,
        faults: Faults,
        requests: RequestLog,
        actions: Actions,
        dispatch: Dispatch,
        metadata: MetadataCache,
    ) -> None:
        self._faults = faults
        self._requests = requests
        self._actions = actions
        self._acting: set[asyncio.Task[None]] = set()
        self._dispatch = dispatch
        self._metadata = metadata

    def __call__(self, exchange: Exchange, frame: memoryview) -> None:
        if not _is_own(frame):
            self._requests.add(frame)
            rules = self._faults.applied()
            if rules:
                try:
                    asked = _decoded_request(frame)
                except (MalformedMessage, ValueError):
                    asked = None  # the dispatcher refuses it
                if asked is not None and self._apply(rules, exchange, asked):
                    return
        self._dispatch(exchange, frame)

    def _apply(self, rules: Sequence[FaultRule], exchange: Exchange, asked: _Asked) -> bool:
        """Whether the request is answered by a rule, or by the dispatcher on the terms of a rule."""
        whole = asked
        for rule in rules:
            try:
                if not _concerns(rule, asked):
                    continue
            except Exception as error:  # noqa: BLE001 - the client must not wait for a bug of the test
                _end_for_bug(rule, exchange, error)
                return True
            if rule.effect.is_observation:
                if rule.selection.split(asked.message, self._name_of)[0] is not None:
                    rule.take()
                continue
            if _needs_whole_fetch(rule, asked):
                if asked.message.session_epoch > 0:
                    exchange.respond(asked.encoded(asked.refused(FetchSessionIdNotFound("a test's fault"))))
                    return True
                asked = asked._replace(message=_without_session(asked.message))
            selected, others = rule.selection.split(asked.message, self._name_of)
            if selected is not None and rule.take():
                self._hit(rule, exchange, asked, selected, others)
                return True
        if asked is whole:
            return False
        connection = _HitConnection(exchange, lambda inner: _pass_on(inner, exchange))
        self._dispatch(Exchange(connection, exchange.received_ms), asked.frame())
        return True

    def _name_of(self, topic_id: Uuid) -> str | None:
        found = self._metadata.topic_by_id(topic_id)
        return None if found is None else found.name

    def _hit(
        self, rule: FaultRule, exchange: Exchange, asked: _Asked, selected: Message, others: Message | None
    ) -> None:
        effect = rule.effect
        logger.info("%s hits %s v%d of %s", rule, asked.api_key.camel_name, asked.version, asked.client_id)
        if effect.action is not None:
            exchange.hold()
            places = places_in(selected, self._name_of)
            acting = asyncio.ensure_future(self._actions.carry_out(effect.action, asked.message, places))
            self._acting.add(acting)
            acting.add_done_callback(self._acting.discard)
            acting.add_done_callback(lambda _: self._delay(rule, exchange, asked, selected, others))
        else:
            self._delay(rule, exchange, asked, selected, others)

    def _delay(
        self, rule: FaultRule, exchange: Exchange, asked: _Asked, selected: Message, others: Message | None
    ) -> None:
        effect = rule.effect
        if exchange.connection.closed:
            return
        if effect.drop == "before":
            exchange.close(f"{rule}")
        elif effect.delay_ms:
            exchange.hold()
            asyncio.get_running_loop().call_later(
                effect.delay_ms / 1_000, self._proceed, rule, exchange, asked, selected, others
            )
        else:
            self._proceed(rule, exchange, asked, selected, others)

    def _proceed(
        self, rule: FaultRule, exchange: Exchange, asked: _Asked, selected: Message, others: Message | None
    ) -> None:
        if exchange.connection.closed:
            return
        effect, error_answer = rule.effect, None
        if effect.answer is not None:
            try:
                made = effect.answer(asked.message)
                if made is not None:
                    wanted = response_class(asked.api_key)
                    if not isinstance(made, wanted):
                        raise TypeError(f"answer returned {type(made).__name__}, not {wanted.__name__}")
                    self._respond(rule, exchange, asked, made)
                    return
            except Exception as error:  # noqa: BLE001 - the client must not wait for a bug of the test
                _end_for_bug(rule, exchange, error)
                return
        if effect.error is not None:
            error_answer = asked._replace(message=selected).refused(
                effect.error(f"injected by {rule}"), is_of_elements=rule.selection.is_of_elements
            )
            if is_of_whole(error_answer):
                others = None
            if others is None and not effect.is_applied:
                self._respond(rule, exchange, asked, error_answer)
                return
            if others is not None and not effect.is_applied:
                asked = asked._replace(message=_unwaiting(others))
        is_whole = others is None
        connection = _HitConnection(
            exchange,
            lambda inner: self._answered(rule, exchange, asked, error_answer, inner, is_whole=is_whole),
        )
        self._dispatch(Exchange(connection, exchange.received_ms), asked.frame())

    def _answered(
        self,
        rule: FaultRule,
        exchange: Exchange,
        asked: _Asked,
        error_answer: Message | None,
        inner: Exchange,
        *,
        is_whole: bool,
    ) -> None:
        parts = inner.parts
        assert parts is not None
        exchange.total_time = inner.total_time
        if rule.effect.drop == "after":
            exchange.close(f"{rule}")
        elif not parts:
            exchange.respond_nothing()
        elif rule.effect.drop == "during":
            exchange.respond_and_close([_Half(_joined(parts))], f"{rule}")
        elif error_answer is None and not rule.effect.throttle_ms and rule.effect.change is None:
            exchange.respond(parts)
        elif error_answer is not None and is_whole:
            self._respond(rule, exchange, asked, error_answer)
        else:
            answer = asked.decoded(parts)
            try:
                if rule.effect.change is not None:
                    rule.effect.change(asked.message, answer)
                if error_answer is not None:
                    answer = (replace if rule.effect.is_applied else merge)(answer, error_answer)
                self._respond(rule, exchange, asked, answer)
            except Exception as error:
                if rule.effect.change is None:
                    raise
                _end_for_bug(rule, exchange, error)

    def _respond(self, rule: FaultRule, exchange: Exchange, asked: _Asked, answer: Message) -> None:
        throttle_ms = rule.effect.throttle_ms
        if throttle_ms:
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = throttle_ms
            exchange.connection.throttle(throttle_ms)
        if isinstance(asked.message, ProduceRequest) and asked.message.acks == 0:
            exchange.close(f"{rule}: a producer with acks=0 learns of an error only so")
        else:
            exchange.respond(asked.encoded(answer))


def _concerns(rule: FaultRule, asked: _Asked) -> bool:
    """Whether a rule is about this request; its elements are looked at afterwards."""
    return (
        rule.covers(asked.api_key, asked.version, asked.client_id)
        and rule.selection.names_subject_of(asked.message)
        and applies(rule.effect.action, asked.message)
        and (rule.when is None or rule.when(asked.message))
    )


def _pass_on(inner: Exchange, exchange: Exchange) -> None:
    assert inner.parts is not None
    exchange.total_time = inner.total_time
    exchange.respond(inner.parts)


def _needs_whole_fetch(rule: FaultRule, asked: _Asked) -> bool:
    """Whether a rule looks for topics of a Fetch, which an incremental one does not name."""
    return isinstance(asked.message, FetchRequest) and rule.selection.is_of_elements and not rule.is_spent


class _Half(bytes):
    """The first half of a response, which has the length of the whole."""

    def __new__(cls, whole: bytes) -> Self:
        half = super().__new__(cls, whole[: len(whole) // 2])
        half._claimed_bytes = len(whole)
        return half

    _claimed_bytes: int

    def __len__(self) -> int:
        return self._claimed_bytes


class _HitConnection:
    """The connection of a request that a rule has hit: the real one, but for the response."""

    def __init__(self, outer: Exchange, answered: Callable[[Exchange], None]) -> None:
        self._outer = outer
        self._connection: AnswerSink = outer.connection
        self._answered = answered
        self.connection_id = self._connection.connection_id
        self.listener_name = self._connection.listener_name
        self.security_protocol = self._connection.security_protocol
        self.peer_host = self._connection.peer_host
        self.local_host = self._connection.local_host
        self.local_port = self._connection.local_port

    @property
    def session(self) -> object:
        return self._connection.session

    @session.setter
    def session(self, session: object) -> None:
        self._connection.session = session

    @property
    def software(self) -> tuple[str, str]:
        return self._connection.software

    @software.setter
    def software(self, software: tuple[str, str]) -> None:
        self._connection.software = software

    @property
    def principal(self) -> KafkaPrincipal:
        return self._connection.principal

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def authenticated(self, principal: KafkaPrincipal) -> None:
        self._connection.authenticated(principal)

    def others_served_since_last_call(self) -> bool:
        return self._connection.others_served_since_last_call()

    def throttle(self, delay_ms: float) -> None:
        self._connection.throttle(delay_ms)

    def when_closed(self, action: Callable[[], None]) -> None:
        self._connection.when_closed(action)

    def answered(self, exchange: Exchange) -> None:
        self._answered(exchange)

    def hold(self) -> None:
        self._outer.hold()

    def keep(self, frame: memoryview) -> memoryview:
        return frame  # it is a copy already

    def lend(self) -> Loan | None:
        return None

    def refuse(self, reason: str) -> None:
        self._outer.close(reason)


def _end_for_bug(rule: FaultRule, exchange: Exchange, error: Exception) -> None:
    """Close the connection because a function of the test failed, or made a response without bytes."""
    logger.warning("%s: the function of the test failed", rule, exc_info=error)
    exchange.close(f"{rule}: the function of the test failed")


def _is_own(frame: memoryview) -> bool:
    """Whether the kit itself asks."""
    try:
        return read_request_header(frame).client_id == CLIENT_ID
    except MalformedMessage:
        return False


def _decoded_request(frame: memoryview) -> _Asked | None:
    """The request, or None if the broker does not serve it. Its bytes are its own."""
    header = read_request_header(frame)
    if APIS.get(header.api_key, header.api_version) is None:
        return None
    api_key = ApiKey(header.api_key)
    decode = request_class(api_key).decoder(header.api_version)
    message, _ = decode(memoryview(bytearray(frame)), header.body_position)
    return _Asked(api_key, header.api_version, header.correlation_id, header.client_id, message)


def _without_session(request: FetchRequest) -> FetchRequest:
    changed = copy(request)
    changed.session_id, changed.session_epoch, changed.forgotten_topics_data = 0, -1, []
    return changed


def _unwaiting(request: Message) -> Message:
    """A Fetch whose other partitions have an error does not wait for records, as in Kafka."""
    if not isinstance(request, FetchRequest):
        return request
    changed = copy(request)
    changed.max_wait_ms = 0
    return changed


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)
