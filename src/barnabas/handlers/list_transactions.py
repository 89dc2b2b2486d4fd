"""ListTransactions (66), v0-2. Gaps: none.

The transactional ids that this broker coordinates, filtered by state, producer id, age and name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.coordinator.regex import Regex
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.states import STATES_BY_NAME
from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_list_transactions(request: ListTransactionsRequest, context: RequestContext) -> None:
    wanted = _filter(request, context.broker.clock.now_ms())

    def respond(parts: Iterable[Iterable[TransactionMetadata]]) -> None:
        states = [
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.shown_as,
            )
            for part in parts
            for each in part
            if context.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id, audited=False
            )
        ]
        context.respond(
            ListTransactionsResponse(unknown_state_filters=_unknown(request), transaction_states=states)
        )

    context.broker.transactions.runtime.run_everywhere(
        lambda shard: shard.find(wanted), respond, context.fail
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    producer_ids = set(request.producer_id_filters)
    pattern = Regex(request.transactional_id_pattern) if request.transactional_id_pattern else None
    duration_ms = request.duration_filter

    def wanted(metadata: TransactionMetadata) -> bool:
        return (
            (not request.state_filters or metadata.state in states)
            and (not producer_ids or metadata.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - metadata.start_timestamp_ms > duration_ms)
            and (pattern is None or pattern.matches(metadata.transactional_id))
        )

    return wanted


def _unknown(request: ListTransactionsRequest) -> list[str]:
    return [name for name in request.state_filters if name not in STATES_BY_NAME]


def _refused(request: ListTransactionsRequest, error: KafkaError, _: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code, unknown_state_filters=_unknown(request))


LIST_TRANSACTIONS = Api(ApiKey.LIST_TRANSACTIONS, handle=handle_list_transactions, refused=_refused)
