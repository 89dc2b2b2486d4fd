"""Default error response for a request that is refused as a whole, unless `Api.refused` overrides it.

A response with an error code at its top carries it there. All others have one for each topic, partition,
group or resource, so each element of the request gets the error. The arrays of the request are matched with
those of the response, level by level, down to the error code. An element's name has the same field in both,
or the same type: `partition` in one, `partition_index` in the other.
"""

from __future__ import annotations

from typing import Any

from barnabas.core.errors import KafkaError
from barnabas.core.steps import Sliced
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema.declarations import Field, Kind
from barnabas.protocol.schema.message import Message

_CODES = ("error_code", "partition_error_code")
_NAMES = frozenset(
    {
        "group_id",
        "index",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
    }
)
"""Fields that name elements, in requests and responses."""


def refusal(request: Message, error: KafkaError, version: int) -> Sliced[Message]:
    api = request.__schema__.api
    assert api is not None
    return (yield from _refused(response_class(api)(), request, error, version))


def refusal_of_elements(request: Message, error: KafkaError, version: int) -> Sliced[Message]:
    """`refusal` with the error for each element, also where the response has a place for it at its top."""
    api = request.__schema__.api
    assert api is not None
    answer = response_class(api)()
    if any(_has_code(each.kind, version) for each in _fields(answer, version)):
        return (yield from _refused_below(answer, request, error, version))
    return (yield from _refused(answer, request, error, version))


def _refused(answer: Message, asked: Any, error: KafkaError, version: int) -> Sliced[Message]:
    fields = _fields(answer, version)
    for field in fields:
        if field.name in _CODES:
            setattr(answer, field.name, error.code)
            if any(each.name == "error_message" for each in fields):
                answer.error_message = error.message  # type: ignore[attr-defined]
            return answer
    return (yield from _refused_below(answer, asked, error, version))


def _refused_below(answer: Message, asked: Any, error: KafkaError, version: int) -> Sliced[Message]:
    answers = next(each for each in _fields(answer, version) if _has_code(each.kind, version))
    elements = next(each for each in _fields(asked, version) if each.kind.element is not None)
    named = getattr(asked, elements.name) or ()
    assert answers.kind.element is not None
    answer_class = answers.kind.element.message
    refused = []
    for element in named:
        refused.append((yield from _named(answer_class, element, error, version)))
        yield
    setattr(answer, answers.name, refused)
    return answer


def _named(answer_class: Any, asked: Any, error: KafkaError, version: int) -> Sliced[Message]:
    """Response for the element `asked`: a struct, or just a name or number."""
    answer: Message = answer_class()
    fields = [each for each in _fields(answer, version) if each.name not in (*_CODES, "error_message")]
    if isinstance(asked, Message):
        for field in fields:
            if field.name in _NAMES and hasattr(asked, field.name):
                setattr(answer, field.name, getattr(asked, field.name))
        first = fields[0]
        if not hasattr(asked, first.name) and first.kind.element is None:
            alike = next(each for each in _fields(asked, version) if each.kind == first.kind)
            setattr(answer, first.name, getattr(asked, alike.name))
    else:
        kind = "string" if isinstance(asked, str) else "int32"
        setattr(answer, next(each for each in fields if each.kind.name == kind).name, asked)
    return (yield from _refused(answer, asked, error, version))


def _has_code(kind: Kind, version: int) -> bool:
    """Whether it is an array of structs with an error code in them, or below them."""
    message = None if kind.element is None else kind.element.message
    return message is not None and any(
        version in each.versions and (each.name in _CODES or _has_code(each.kind, version))
        for each in message.__schema__.fields
    )


def _fields(message: Message, version: int) -> list[Field]:
    return [each for each in type(message).__schema__.fields if version in each.versions]
