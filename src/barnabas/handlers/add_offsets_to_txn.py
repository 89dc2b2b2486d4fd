"""AddOffsetsToTxn (25), v0-4. Gaps: none.

A group's transactional offsets are records of its `__consumer_offsets` partition, so that partition joins the
transaction.
"""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.transaction.state.errors import fenced_code
from barnabas.core.errors import NONE, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_PRODUCER_FENCED = 2


def handle_add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
    def done(error: KafkaError | None) -> None:
        code = NONE if error is None else error.code
        code = fenced_code(code, context.api_version, VERSION_WITH_PRODUCER_FENCED)
        context.respond(AddOffsetsToTxnResponse(error_code=code))

    context.broker.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(OFFSETS_TOPIC, context.broker.groups.partition_for(request.group_id))],
        done,
        client_transaction_version=0,
    )


ADD_OFFSETS_TO_TXN = Api(ApiKey.ADD_OFFSETS_TO_TXN, handle=handle_add_offsets_to_txn)
