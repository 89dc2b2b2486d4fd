"""DescribeTransactions (65), v0. Gaps: none."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.core.errors import KafkaError, TransactionalIdAuthorizationFailed
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.chunked_queries import ask_in_chunks
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

Found = TransactionMetadata | TransactionState
"""Metadata of a transactional id, or the response with the error that explains why there is none."""


async def handle_describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    def describe(transactional_id: str, respond: Callable[[Found], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(TransactionState(error_code=error.code, transactional_id=transactional_id))

        if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            refuse(TransactionalIdAuthorizationFailed(""))
            return
        context.broker.transactions.run(
            transactional_id,
            lambda shard: shard.describe(transactional_id),
            respond,
            refuse,
        )

    found = await ask_in_chunks(request.transactional_ids, describe, context)
    states = [await context.spread(_described(state, context)) for state in found]
    return DescribeTransactionsResponse(transaction_states=states)


def _described(found: Found, context: RequestContext) -> Sliced[TransactionState]:
    """The response for one transactional id, without topics that the client may not describe."""
    if isinstance(found, TransactionState):
        return found
    metadata = found
    context.budget.spend_elements(len(metadata.partitions))
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        yield
        if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, audited=False):
            topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=metadata.transactional_id,
        transaction_state=metadata.state.shown_as,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


DESCRIBE_TRANSACTIONS = Api(ApiKey.DESCRIBE_TRANSACTIONS, handle=handle_describe_transactions)
