"""A request has one budget for all that it causes, and its client pays for all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import InvalidRequest, KafkaError, MessageTooLarge, RequestTimedOut
from barnabas.core.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_ELEMENTS_MAX,
    INFLATED_REQUEST_BYTES_MAX,
    LOG_LINES_PER_SECOND_MAX,
    NAMES_CHECKED_MAX,
    RECORDS_WALKED_MAX,
    REQUEST_LOOP_MS_MAX,
)
from barnabas.core.reporting.metrics import Metrics
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.requests.bounded_loops import distinct, each, matching
from barnabas.requests.context import RequestContext
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api, ApiTable
from barnabas.security.acl.vocabulary import Operation, ResourceType
from tests.support.settings import unlimited
from tests.unit.requests.test_charged_time import AllowNothing
from tests.unit.requests.test_dispatcher_slices import VERSION, Asker, TickingClock, frame_of, turns_until

MANY = 3_000


class Quotas:
    """Records charges, and throttles every client for a given time."""

    is_limiting = True

    def __init__(self, throttle_ms: int = 0) -> None:
        self.throttle_ms = throttle_ms
        self.charged_ms = 0.0

    def charge_time(self, _user: str, _client_id: str | None, spent_ms: float) -> int:
        self.charged_ms += spent_ms
        return self.throttle_ms


class ThrottledAsker(Asker):
    throttled_ms = 0.0

    def throttle(self, delay_ms: float) -> None:
        self.throttled_ms = max(self.throttled_ms, delay_ms)


def serve(handle: Callable[[Any, Any], Any], **services: object) -> Dispatcher:
    """A dispatcher whose clock advances a millisecond per call, which counts the steps of the work."""
    api = Api(ApiKey.METADATA, handle=handle)
    broker: Any = SimpleNamespace(**({"quotas": unlimited()} | services))
    return Dispatcher(ApiTable([api.key], lambda _: api), broker, TickingClock(), Metrics())


def topics(count: int, name: str = "t") -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name=name) for _ in range(count)])


def code_in(asker: Asker) -> set[int]:
    assert asker.answer is not None
    return {topic.error_code for topic in MetadataResponse.decode(asker.answer, VERSION, 5)[0].topics}


async def charged(handle: Callable[[Any, Any], Any], frame: bytearray) -> float:
    quotas, asker = Quotas(), ThrottledAsker()
    dispatcher = serve(handle, quotas=quotas)
    asker.ask(dispatcher, frame)
    await turns_until(asker)
    await dispatcher.close()
    return quotas.charged_ms


async def test_decoding_is_charged() -> None:
    small = await charged(lambda _, __: topics(1), frame_of(1))
    assert await charged(lambda _, __: topics(1), frame_of(MANY)) > small + MANY / 64


async def test_encoding_is_charged() -> None:
    small = await charged(lambda _, __: topics(1), frame_of(1))
    assert await charged(lambda _, __: topics(MANY), frame_of(1)) > small + MANY / 64


async def test_a_client_is_throttled_for_encoding_too() -> None:
    """The cost is known only after encoding: no field of the response carries it."""
    quotas, asker = Quotas(), ThrottledAsker()
    dispatcher = serve(lambda _, __: topics(MANY), quotas=quotas)
    asker.ask(dispatcher, frame_of(1))
    quotas.throttle_ms = 700
    await turns_until(asker)
    assert asker.throttled_ms == 700
    await dispatcher.close()


@pytest.mark.parametrize("count", [1, MANY])
async def test_a_malformed_frame_is_charged_and_closed_when_its_quota_allows(count: int) -> None:
    quotas, asker = Quotas(throttle_ms=1), ThrottledAsker()
    dispatcher = serve(lambda _, __: topics(1), quotas=quotas)
    asker.ask(dispatcher, frame_of(count)[:-3])
    for _ in range(200):
        if quotas.charged_ms:
            break
        await asyncio.sleep(0)
    assert quotas.charged_ms > count / 64
    assert not asker.refusal, "a client that is closed at once is back at once"
    assert asker.held
    await asyncio.sleep(0.02)
    assert "malformed" in asker.refusal
    await dispatcher.close()


async def test_an_answer_has_a_largest_size() -> None:
    name = "n" * 30_000
    dispatcher = serve(lambda _, __: topics(ANSWER_BYTES_MAX // 30_000 + 1, name))
    asker = Asker()
    asker.ask(dispatcher, frame_of(1))
    await turns_until(asker)
    assert code_in(asker) == {InvalidRequest.code}


async def test_a_request_has_so_much_of_the_loop() -> None:
    def handle(_: object, __: object) -> Generator[None, None, MetadataResponse]:
        for _ in range(2 * int(REQUEST_LOOP_MS_MAX)):
            yield
        return topics(1)

    asker = Asker()
    asker.ask(serve(handle), frame_of(1))
    await turns_until(asker)
    assert code_in(asker) == {RequestTimedOut.code}


async def test_a_coroutine_has_so_much_of_the_loop() -> None:
    async def handle(_: object, context: RequestContext) -> MetadataResponse:
        await context.spread(each(range(2 * int(REQUEST_LOOP_MS_MAX)), str))
        return topics(1)

    asker = Asker()
    dispatcher = serve(handle, clock=TickingClock())
    asker.ask(dispatcher, frame_of(1))
    await turns_until(asker)
    assert code_in(asker) == {RequestTimedOut.code}
    await dispatcher.close()


async def test_rights_looked_up_are_counted() -> None:
    left = []

    def handle(_: object, context: RequestContext) -> MetadataResponse:
        context.allows(Operation.READ, ResourceType.TOPIC, "t")
        context.authorized_operations(ResourceType.TOPIC, "t")
        left.append(context.budget.names)
        return topics(1)

    asker = Asker()
    asker.ask(serve(handle, authorizer=AllowNothing()), frame_of(1))
    assert NAMES_CHECKED_MAX - 20 < left[0] < NAMES_CHECKED_MAX - 1


@pytest.mark.parametrize(
    ("spend", "amount", "error"),
    [
        (Budget.spend_names, NAMES_CHECKED_MAX, InvalidRequest),
        (Budget.spend_records, RECORDS_WALKED_MAX, RequestTimedOut),
        (Budget.spend_inflated, INFLATED_REQUEST_BYTES_MAX, MessageTooLarge),
        (Budget.spend_answer, ANSWER_BYTES_MAX, InvalidRequest),
        (Budget.spend_elements, ANSWER_ELEMENTS_MAX, InvalidRequest),
    ],
)
def test_every_amount_ends(
    spend: Callable[[Budget, int], None], amount: int, error: type[KafkaError]
) -> None:
    budget = Budget()
    spend(budget, amount)
    with pytest.raises(error):
        spend(budget, 1)


async def test_answers_that_cannot_be_encoded_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = serve(lambda _, __: MetadataResponse(controller_id="no number"))  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        for _ in range(20 * LOG_LINES_PER_SECOND_MAX):
            asker = Asker()
            asker.ask(dispatcher, frame_of(1))
            assert asker.refusal
    assert 0 < len(caplog.records) <= 3 * LOG_LINES_PER_SECOND_MAX


def run(work: Generator[None, None, Any]) -> tuple[Any, int]:
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def test_elements_are_looked_at_with_a_stop_after_each() -> None:
    assert run(each("abab", str.upper)) == (["A", "B", "A", "B"], 4)
    assert run(distinct("abab", str.upper)) == (["a", "b"], 4)
    assert run(matching("abab", "b".__eq__)) == (["b", "b"], 4)
