"""Verification with the transaction coordinator: every question is answered, and only success allows a
write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from barnabas.coordinator.transaction.verification.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
)
from barnabas.core.errors import (
    BrokerNotAvailable,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
    name_of,
)
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

ME, OTHER = BrokerId(1), BrokerId(2)
PRODUCER = ProducerIdAndEpoch(7, 0)
PARTITIONS = [TopicPartition("topic", 0), TopicPartition("topic", 1)]
Ask = Callable[[Any], Any]


def answered(codes: dict[int, int]) -> AddPartitionsToTxnResponse:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
        for number, code in codes.items()
    ]
    topic = AddPartitionsToTxnTopicResult(name="topic", results_by_partition=rows)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id="tx", topic_results=[topic])]
    )


def membership(answer: Ask) -> AddPartitionsToTxnManager:
    """The coordinator is on the other broker, which answers like this."""

    async def send(broker: int, request: AddPartitionsToTxnRequest, _: object) -> AddPartitionsToTxnResponse:
        assert broker == OTHER
        found = answer(request)
        assert isinstance(found, AddPartitionsToTxnResponse)
        return found

    metadata = MetadataCache("cluster")
    metadata.put_topic(
        TRANSACTION_TOPIC, Uuid(bytes(15) + b"1"), [PartitionMetadata(0, (1, 2), leader=OTHER)]
    )
    return AddPartitionsToTxnManager(
        ME,
        cast("Any", SimpleNamespace(partition_for=lambda _: 0)),
        metadata,
        cast("Any", SimpleNamespace(send=send)),
        asyncio.ensure_future,
    )


async def added(answer: Ask) -> str:
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    membership(answer).add_partitions(
        "tx", PRODUCER, PARTITIONS, heard.set_result, client_transaction_version=2
    )
    error = await asyncio.wait_for(heard, 30)
    return "NONE" if error is None else name_of(error.code)


async def verified(answer: Ask) -> str | frozenset[TopicPartition]:
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    membership(answer).verify(
        "tx", PRODUCER, PARTITIONS, heard.set_result, lambda error: heard.set_result(name_of(error.code))
    )
    found: str | frozenset[TopicPartition] = await asyncio.wait_for(heard, 30)
    return found


async def test_a_yes_for_every_partition_is_a_yes() -> None:
    assert await added(lambda _: answered({0: 0, 1: 0})) == "NONE"
    assert await verified(lambda _: answered({0: 0, 1: 0})) == frozenset()


@pytest.mark.parametrize("codes", [{}, {0: 0}, {1: 0}])
async def test_a_partition_that_the_answer_leaves_out_is_not_part_of_the_transaction(
    codes: dict[int, int],
) -> None:
    assert await added(lambda _: answered(codes)) == "COORDINATOR_NOT_AVAILABLE"
    assert await verified(lambda _: answered(codes)) == frozenset(
        each for each in PARTITIONS if each.partition not in codes
    )


async def test_a_no_for_one_is_a_no() -> None:
    assert await added(lambda _: answered({0: 0, 1: ProducerFenced.code})) == "PRODUCER_FENCED"
    assert await verified(lambda _: answered({0: 0, 1: ProducerFenced.code})) == "PRODUCER_FENCED"
    abortable = TransactionAbortable.code
    assert await verified(lambda _: answered({0: 0, 1: abortable})) == frozenset({PARTITIONS[1]})


async def test_a_coordinator_that_has_not_heard_of_a_partition_yet_is_asked_again() -> None:
    """It refuses all of them; that the others were not attempted is no reason for a producer to give up."""
    codes = {0: OperationNotAttempted.code, 1: UnknownTopicOrPartition.code}
    assert await added(lambda _: answered(codes)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await verified(lambda _: answered(codes)) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("failure", [BrokerNotAvailable("it is down"), RuntimeError("nobody expected this")])
async def test_a_coordinator_that_cannot_be_asked_leaves_no_request_waiting(failure: Exception) -> None:
    def fail(_: object) -> None:
        raise failure

    assert await added(fail) == "COORDINATOR_NOT_AVAILABLE"
    assert await verified(fail) == "COORDINATOR_NOT_AVAILABLE"
