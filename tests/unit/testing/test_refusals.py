"""Every request that the broker serves can be refused by a fault rule."""

from __future__ import annotations

import pytest

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.message import Message
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.testing.faults.layer import _Asked

LOADING = 14
"""COORDINATOR_LOAD_IN_PROGRESS, which some handlers hide from old clients or from members."""


def codes_in(message: object) -> set[int]:
    if isinstance(message, list):
        return set().union(*map(codes_in, message))
    if not isinstance(message, Message):
        return set()
    found: set[int] = set()
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        found |= {value} if field.name.endswith("error_code") else codes_in(value)
    return found


def with_an_element(request: Message) -> Message:
    """The request with one element in each of its arrays."""
    for field in type(request).__schema__.fields:
        element = field.kind.element
        if element is not None:
            plain: object = "one" if element.name == "string" else 0
            made = plain if element.message is None else with_an_element(element.message())
            setattr(request, field.name, [made])
    return request


@pytest.mark.parametrize("api", SERVED_VERSIONS, ids=lambda api: api.camel_name)
def test_a_rule_refuses_every_version_of_every_api(api: ApiKey) -> None:
    for version in SERVED_VERSIONS[api]:
        asked = _Asked(api, version, 7, "client", with_an_element(request_class(api)()))
        answer = asked.refused(KafkaError.by_code[LOADING]("injected"))
        assert codes_in(answer) - {0}, f"v{version}"
        assert asked.encoded(answer)
