"""A request that is refused as a whole is answered, in every API and version, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.errors import PolicyViolation
from barnabas.core.ids import Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.handlers import APIS
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.declarations import Kind
from barnabas.protocol.schema.headers import encode_request, read_response_header
from barnabas.protocol.schema.message import Message
from barnabas.requests.default_error_response import refusal
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api, ApiTable
from barnabas.security.acl.authorizer import AllowAll
from tests.support.manual_time import ManualClock
from tests.support.settings import unlimited
from tests.support.slices import in_one_go
from tests.unit.requests.test_dispatcher_slices import Asker

NUMBER, NAME = 7, "x"


def sample(message_class: Any, version: int) -> Any:
    """A message with one element in each of its arrays."""
    message = message_class()
    for field in message_class.__schema__.fields:
        if version in field.versions and field.tag is None:
            setattr(message, field.name, sample_of(field.kind, version))
    return message


def sample_of(kind: Kind, version: int) -> Any:
    if kind.element is not None:
        return [sample_of(kind.element, version)]
    if kind.message is not None:
        return sample(kind.message, version)
    known = {"string": NAME, "bytes": b"", "records": b"", "uuid": Uuid(bytes(range(16))), "bool": True}
    return known.get(kind.name, NUMBER)


def codes(message: Message) -> Iterator[int]:
    """All error codes in a message."""
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Message):
                yield from codes(each)


def refuse(request: Any, context: Any) -> None:
    raise PolicyViolation("not today")


def answered(api: Api, version: int) -> Any:
    """Response of the dispatcher for a handler that lets an error escape."""
    asker = Asker()
    table = ApiTable([api.key], lambda _: replace(api, handle=refuse))
    dispatcher = Dispatcher(
        table,
        cast("Any", SimpleNamespace(quotas=unlimited(), authorizer=AllowAll())),
        ManualClock(),
        Metrics(),
    )
    parts: Any = encode_request(api.key, version, 1, "client", sample(request_class(api.key), version))
    asker.ask(dispatcher, bytearray(b"".join(parts)))
    assert asker.refusal == ""
    assert asker.answer is not None
    _, body = read_response_header(memoryview(asker.answer), api.key, version)
    response, end = response_class(api.key).decode(asker.answer, version, body)
    assert end == len(asker.answer)
    return response


@pytest.mark.parametrize("api", list(APIS), ids=lambda api: api.key.name)
def test_an_error_that_escapes_is_answered_in_every_version(api: Api) -> None:
    for version in api.versions:
        assert PolicyViolation.code in codes(answered(api, version)), version


@pytest.mark.parametrize(
    ("name", "version", "shown"),
    [
        ("PRODUCE", 9, "name='x', index=7"),
        ("FETCH", 6, "topic='x', partition_index=7"),
        ("METADATA", 1, "name='x'"),
        ("DELETE_TOPICS", 1, "name='x'"),
        ("DESCRIBE_GROUPS", 0, "group_id='x'"),
        ("FIND_COORDINATOR", 4, "key='x'"),
        ("ELECT_LEADERS", 0, "topic='x', partition_id=7"),
        ("WRITE_TXN_MARKERS", 1, "producer_id=7, name='x', partition_index=7"),
        ("DESCRIBE_CONFIGS", 4, "resource_type=7, resource_name='x'"),
    ],
)
def test_what_a_refused_request_names_is_named_in_its_answer(name: str, version: int, shown: str) -> None:
    (api,) = (each for each in APIS if each.key.name == name)
    request = sample(request_class(api.key), version)
    text = repr(in_one_go((api.refused or refusal)(request, PolicyViolation("no"), version)))
    for each in shown.split(", "):
        assert each in text
