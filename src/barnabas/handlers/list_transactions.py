"""ListTransactions (66), v0-2. Gaps: none.

The transactional ids that this broker coordinates, filtered by state, producer id, age and name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.coordinator.group.consumer.regex import Regex
from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.states import STATES_BY_NAME
from barnabas.core.errors import KafkaError
from barnabas.core.steps import Sliced
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
    if context.broker.authorizer.allows_everything and request.transactional_id_pattern:
        Regex(request.transactional_id_pattern)  # a broker without transactions refuses a bad pattern too
    context.broker.transactions.runtime.run_everywhere(
        lambda shard: shard.all_transactions(),
        lambda parts: context.answer_in_slices(_listed(parts, request, context)),
        context.fail,
    )


def _listed(
    parts: Iterable[Iterable[TransactionMetadata]], request: ListTransactionsRequest, context: RequestContext
) -> Sliced[ListTransactionsResponse]:
    """Transactions that match the filters and that the client may describe.

    The right to an id is checked first: neither cost nor time of the response may depend on hidden ids. A
    pattern is compiled only for a client that may see an id which it could match.
    """
    wanted: Callable[[TransactionMetadata], bool] | None = None
    states = []
    for part in parts:
        for metadata in part:
            yield
            transactional_id = metadata.transactional_id
            if not context.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, audited=False
            ):
                continue
            if wanted is None:
                wanted = _filter(request, context.broker.clock.now_ms())
            if wanted(metadata):
                states.append(
                    TransactionState(
                        transactional_id=transactional_id,
                        producer_id=metadata.producer_id,
                        transaction_state=metadata.state.shown_as,
                    )
                )
    return ListTransactionsResponse(unknown_state_filters=_unknown(request), transaction_states=states)


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
