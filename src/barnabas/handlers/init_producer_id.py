"""InitProducerId (22), v0-5. Gaps: none.

An idempotent producer gets a new producer id with epoch 0. After an unrecoverable error it may send the id
and epoch that it has (v3+). Without a transactional id the broker keeps no state about them, so it gets a new
id too. With a transactional id the transaction coordinator decides, and the new epoch fences the previous
producer.
"""

from __future__ import annotations

from barnabas.coordinator.transaction.state.errors import fenced_code
from barnabas.core.errors import ClusterAuthorizationFailed, InvalidRequest, KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

_NONE = -1
VERSION_WITH_PRODUCER_FENCED = 4


def handle_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | None:
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id has at least one character")
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise InvalidRequest("a producer id and its epoch are given together or not at all")
    if request.transactional_id is not None:
        if context.broker.producer_ids.has_any:
            _initialize(request, context)
        else:
            context.answer_with(_initialize_later(request, context))
        return None
    _check_may_write(context)
    producer_id = context.broker.producer_ids.take()
    if producer_id is None:
        context.answer_with(_wait_for_block(context))
        return None
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check_may_write(context: RequestContext) -> None:
    """Require WRITE on any topic, or IDEMPOTENT_WRITE on the cluster (KIP-679)."""
    if context.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False):
        return
    connection = context.exchange.connection
    if not context.broker.authorizer.allows_anywhere(
        connection.principal, connection.peer_host, Operation.WRITE, ResourceType.TOPIC
    ):
        raise ClusterAuthorizationFailed("not authorized to write idempotently")


async def _wait_for_block(context: RequestContext) -> InitProducerIdResponse:
    producer_id = await context.broker.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _initialize(request: InitProducerIdRequest, context: RequestContext) -> None:
    assert request.transactional_id is not None
    owner = context.memory_owner()
    context.broker.transactions.run(
        request.transactional_id,
        lambda shard: shard.init_producer_id(request, owner),
        context.respond,
        context.fail,
    )


async def _initialize_later(request: InitProducerIdRequest, context: RequestContext) -> None:
    await context.broker.producer_ids.fetched()
    _initialize(request, context)


def _refused(_: InitProducerIdRequest, error: KafkaError, version: int) -> InitProducerIdResponse:
    code = fenced_code(error.code, version, VERSION_WITH_PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)


INIT_PRODUCER_ID = Api(ApiKey.INIT_PRODUCER_ID, handle=handle_init_producer_id, refused=_refused)
