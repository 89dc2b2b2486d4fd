"""What a request hears that is refused as a whole, unless its API's row says otherwise (`Api.refused`).

An answer with an error code at its top has it there. All others have one for each topic, partition, group or
resource, so everything that the request names is answered with the error: the arrays of the request are
followed by those of the answer, level by level, until there is a code to set. What names an element has the
same field in both, or is of the same type: `partition` in one, `partition_index` in the other.
"""

from __future__ import annotations

from typing import Any

from barnabas.core.errors import KafkaError
from barnabas.protocol.declarations import Field, Kind
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema import Message

_CODES = ("error_code", "partition_error_code")
_NAMES = frozenset(
    {
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
"""What elements are known by, in a request and in its answer."""


def refusal(request: Message, error: KafkaError, version: int) -> Message:
    api = request.__schema__.api
    assert api is not None
    return _refused(response_class(api)(), request, error, version)


def _refused(answer: Message, asked: Any, error: KafkaError, version: int) -> Message:
    fields = _fields(answer, version)
    for field in fields:
        if field.name in _CODES:
            setattr(answer, field.name, error.code)
            if any(each.name == "error_message" for each in fields):
                answer.error_message = error.message  # type: ignore[attr-defined]
            return answer
    answers = next(each for each in fields if _has_code(each.kind, version))
    elements = next(each for each in _fields(asked, version) if each.kind.element is not None)
    named = getattr(asked, elements.name) or ()
    assert answers.kind.element is not None
    answer_class = answers.kind.element.message
    setattr(answer, answers.name, [_named(answer_class, each, error, version) for each in named])
    return answer


def _named(answer_class: Any, asked: Any, error: KafkaError, version: int) -> Message:
    """The answer about what the request names by `asked`, a struct or just a name or number."""
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
    return _refused(answer, asked, error, version)


def _has_code(kind: Kind, version: int) -> bool:
    """Whether it is an array of structs with a code in them, or below them."""
    message = None if kind.element is None else kind.element.message
    return message is not None and any(
        version in each.versions and (each.name in _CODES or _has_code(each.kind, version))
        for each in message.__schema__.fields
    )


def _fields(message: Message, version: int) -> list[Field]:
    return [each for each in type(message).__schema__.fields if version in each.versions]
