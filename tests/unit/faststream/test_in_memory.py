"""The plug-in for FastStream in memory, by FastStream's own test broker."""

from __future__ import annotations

from typing import Any

import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import SetupError
from faststream.specification import AsyncAPI
from pydantic import BaseModel, ValidationError

from barnabas.client import Retry, TopicPartition
from barnabas.core.errors import InvalidConfig
from barnabas.faststream import KafkaBroker, KafkaResponse, KafkaRouter, TestKafkaBroker
from barnabas.faststream.annotations import KafkaMessage as Message


class Order(BaseModel):
    customer: str
    apples: int


async def test_a_result_goes_to_the_publisher() -> None:
    broker = KafkaBroker()

    @broker.subscriber("orders", group_id="billing")
    @broker.publisher("invoices", key="k", headers={"from": "billing"})
    async def bill(order: Order) -> dict[str, int]:
        return {"due": order.apples * 2}

    seen: list[tuple[Any, bytes | None, dict[str, str]]] = []

    @broker.subscriber("invoices", group_id="archive")
    async def keep(body: dict[str, int], message: Message) -> None:
        seen.append((body, message.raw_message.key, message.headers))

    async with TestKafkaBroker(broker):
        await broker.publish(Order(customer="alice", apples=3), "orders")
        bill.mock.assert_called_once_with({"customer": "alice", "apples": 3})
        keep.mock.assert_called_once_with({"due": 6})
    ((body, key, headers),) = seen
    assert (body, key, headers["from"], headers["content-type"]) == (
        {"due": 6},
        b"k",
        "billing",
        "application/json",
    )


async def test_a_wrong_message_is_the_error_of_the_test() -> None:
    broker = KafkaBroker()

    @broker.subscriber("orders", group_id="billing")
    async def bill(order: Order) -> None: ...

    async with TestKafkaBroker(broker):
        with pytest.raises(ValidationError):
            await broker.publish({"customer": "alice"}, "orders")


async def test_batches_go_both_ways() -> None:
    broker = KafkaBroker()

    @broker.subscriber("orders", group_id="billing", batch=True)
    @broker.publisher("invoices", batch=True)
    async def bill(orders: list[int]) -> list[int]:
        return [order + 1 for order in orders]

    single: list[int] = []

    @broker.subscriber("invoices", group_id="archive")
    async def keep(body: int) -> None:
        single.append(body)

    async with TestKafkaBroker(broker):
        await broker.publish_batch(1, KafkaResponse(2, key="k"), topic="orders")
        bill.mock.assert_called_once_with([1, 2])
    assert single == [2, 3]


async def test_one_member_of_a_group_receives_a_message() -> None:
    broker = KafkaBroker()
    seen: list[str] = []

    @broker.subscriber("orders", group_id="billing")
    async def one(body: str) -> None:
        seen.append("billing")

    @broker.subscriber("orders", group_id="billing")
    async def two(body: str) -> None:
        seen.append("billing")

    @broker.subscriber(pattern="ord.*", group_id="audit")
    async def three(body: str) -> None:
        seen.append("audit")

    async with TestKafkaBroker(broker):
        await broker.publish("x", "orders")
    assert sorted(seen) == ["audit", "billing"]


async def test_a_router_has_a_prefix() -> None:
    router = KafkaRouter(prefix="eu-")

    @router.subscriber("orders", group_id="billing")
    async def bill(body: str) -> str:
        return f"{body}!"

    broker = KafkaBroker(routers=[router])
    async with TestKafkaBroker(broker):
        await broker.publish("x", "eu-orders")
        bill.mock.assert_called_once_with("x")
        answer = await broker.request("y", "eu-orders")
        assert await answer.decode() == "y!"


async def test_a_reply_goes_where_the_message_says() -> None:
    broker = KafkaBroker()

    @broker.subscriber("questions", group_id="oracle")
    async def answer(body: str) -> str:
        return body.upper()

    @broker.subscriber("answers", group_id="asker")
    async def receive(body: str) -> None: ...

    async with TestKafkaBroker(broker):
        await broker.publish("why", "questions", reply_to="answers")
        receive.mock.assert_called_once_with("WHY")


def test_channels_are_described() -> None:
    broker = KafkaBroker(["a:9092", "b:9092"], config={"security.protocol": "SASL_SSL"})

    @broker.subscriber("orders", group_id="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> str:
        return ""

    schema = AsyncAPI(broker).to_specification().to_jsonable()
    assert {channel["address"] for channel in schema["channels"].values()} == {"orders", "invoices"}
    assert {server["protocol"] for server in schema["servers"].values()} == {"kafka-secure"}
    assert FastStream(broker) is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_id": None, "ack_policy": AckPolicy.MANUAL}, "MANUAL needs a group"),
        ({"partitions": [TopicPartition("t", 0)]}, "topics, or a pattern, or partitions"),
        ({"retry": Retry(3)}, "name dead_letters"),
        ({"batch": True, "max_workers": 2}, "for single records"),
        ({"max_workers": 0}, "one record at a time"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SetupError, match=words):
        KafkaBroker().subscriber("orders", **{"group_id": "billing", **options})


def test_unknown_settings_are_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean linger\.ms"):
        KafkaBroker(config={"linger.mss": 1})
    with pytest.raises(InvalidConfig, match=r"did you mean fetch\.min\.bytes"):
        KafkaBroker().subscriber("orders", config={"fetch.min.byte": 1})
