"""DescribeTransactions (65), v0. Gaps: none."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.core.errors import KafkaError, TransactionalIdAuthorizationFailed
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.in_chunks import ask_in_chunks
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


async def handle_describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    def describe(transactional_id: str, respond: Callable[[TransactionState], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(TransactionState(error_code=error.code, transactional_id=transactional_id))

        if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            refuse(TransactionalIdAuthorizationFailed(""))
            return
        context.broker.transactions.run(
            transactional_id,
            lambda shard: shard.describe(transactional_id),
            lambda metadata: respond(_described(metadata, context)),
            refuse,
        )

    wanted = list(dict.fromkeys(request.transactional_ids))
    states = await ask_in_chunks(wanted, describe, context)
    known = dict(zip(wanted, states, strict=True))  # an id that is named again has the same answer
    return DescribeTransactionsResponse(
        transaction_states=[known[each] for each in request.transactional_ids]
    )


def _described(metadata: TransactionMetadata, context: RequestContext) -> TransactionState:
    """Topics that the caller may not describe are left out."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
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
