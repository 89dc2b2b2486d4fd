"""DescribeTransactions (65), v0. Gaps: none."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.in_chunks import ask_in_chunks
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


async def handle_describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    wanted = list(dict.fromkeys(request.transactional_ids))
    states = await ask_in_chunks(wanted, context.broker.transactions.describe, context)
    known = dict(zip(wanted, states, strict=True))  # an id that is named again has the same answer
    return DescribeTransactionsResponse(
        transaction_states=[known[each] for each in request.transactional_ids]
    )


DESCRIBE_TRANSACTIONS = Api(
    ApiKey.DESCRIBE_TRANSACTIONS, versions=range(1), handle=handle_describe_transactions
)
