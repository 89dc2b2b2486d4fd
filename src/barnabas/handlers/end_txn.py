"""EndTxn (26), v0-5. Gaps: none.

Answered once the fate of the transaction is decided, which may be before every partition has been told.
Version 5 comes from producers of transaction version 2: it ends the epoch, too, and the answer has the next.
"""

from __future__ import annotations

from barnabas.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.handlers.transaction_errors import fenced_code
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSION_WITH_PRODUCER_FENCED = 2
VERSION_WITH_EPOCH_BUMP = 5


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> None:
    def respond(response: EndTxnResponse) -> None:
        response.error_code = fenced_code(
            response.error_code, context.api_version, VERSION_WITH_PRODUCER_FENCED
        )
        context.respond(response)

    bumps_epoch = context.api_version >= VERSION_WITH_EPOCH_BUMP
    context.broker.transactions.end(
        request, respond, client_transaction_version=EPOCH_BUMP_VERSION if bumps_epoch else 0
    )


END_TXN = Api(ApiKey.END_TXN, versions=range(6), handle=handle_end_txn)
