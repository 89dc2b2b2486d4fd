"""EndTxn (26), v0-5. Gaps: none.

The coordinator answers once the outcome of the transaction is decided, possibly before every partition has
its marker. Version 5 comes from producers of transaction version 2: it also ends the epoch, and the response
carries the next one.
"""

from __future__ import annotations

from barnabas.coordinator.transaction.state.errors import fenced_code
from barnabas.coordinator.transaction.state.settings import EPOCH_BUMP_VERSION
from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_PRODUCER_FENCED = 2
VERSION_WITH_EPOCH_BUMP = 5


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> None:
    version = EPOCH_BUMP_VERSION if context.api_version >= VERSION_WITH_EPOCH_BUMP else 0
    context.broker.transactions.run(
        request.transactional_id, lambda shard: shard.end(request, version), context.respond, context.fail
    )


def _refused(_: EndTxnRequest, error: KafkaError, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=fenced_code(error.code, version, VERSION_WITH_PRODUCER_FENCED))


END_TXN = Api(ApiKey.END_TXN, handle=handle_end_txn, refused=_refused)
