"""ListTransactions (66), v0-2. Gaps: none.

The transactional ids that this broker coordinates, filtered by state, producer id, age and name.
"""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest


def handle_list_transactions(request: ListTransactionsRequest, context: RequestContext) -> None:
    context.broker.transactions.list_all(request, context.respond)


LIST_TRANSACTIONS = Api(ApiKey.LIST_TRANSACTIONS, versions=range(3), handle=handle_list_transactions)
