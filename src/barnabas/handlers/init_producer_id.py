"""InitProducerId (22), v0-5. Gaps: transactional ids (there is no transaction coordinator).

An idempotent producer gets a fresh id with epoch 0. It may send the id and epoch that it has
(v3+) after an unrecoverable error; without a transactional id nothing is remembered about
them, so it gets a fresh id too.
"""

from __future__ import annotations

from barnabas.core.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def handle_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | None:
    try:
        _check(request)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=_NONE)
    producer_id = context.broker.producer_ids.take()
    if producer_id is None:
        context.answer_with(_wait_for_block(context))
        return None
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _wait_for_block(context: RequestContext) -> InitProducerIdResponse:
    producer_id = await context.broker.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(request: InitProducerIdRequest) -> None:
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id has at least one character")
    if request.transactional_id is not None:
        raise UnsupportedVersion("this broker has no transaction coordinator")
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise InvalidRequest("a producer id and its epoch are given together or not at all")


INIT_PRODUCER_ID = Api(ApiKey.INIT_PRODUCER_ID, versions=range(6), handle=handle_init_producer_id)
