"""DescribeTransactions (65), v0. Gaps: none."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def handle_describe_transactions(request: DescribeTransactionsRequest, context: RequestContext) -> None:
    context.broker.transactions.describe(
        request.transactional_ids,
        lambda states: context.respond(DescribeTransactionsResponse(transaction_states=states)),
    )


DESCRIBE_TRANSACTIONS = Api(
    ApiKey.DESCRIBE_TRANSACTIONS, versions=range(1), handle=handle_describe_transactions
)
