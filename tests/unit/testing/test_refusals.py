"""Every request that the broker serves can be refused by a fault rule."""

from __future__ import annotations

import pytest

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.message import Message
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.testing.faults.layer import _Asked
from barnabas.testing.faults.selection import Selection, named_by

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


def with_names(message: Message) -> Message:
    """The request with the same name for each topic in it."""
    for field in type(message).__schema__.fields:
        value = getattr(message, field.name)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    with_names(each)
        elif field.name in ("name", "topic", "topic_name"):
            setattr(message, field.name, "one")
    return message


BETWEEN_BROKERS = {ApiKey.UPDATE_METADATA, ApiKey.ADD_PARTITIONS_TO_TXN}
WITHOUT_ERRORS_OF_TOPICS = {
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.CONSUMER_GROUP_HEARTBEAT,
}  # fmt: skip
NAMING_TOPICS = [
    each
    for each in SERVED_VERSIONS
    if "topic" in named_by(request_class(each)) and each not in WITHOUT_ERRORS_OF_TOPICS | BETWEEN_BROKERS
]


@pytest.mark.parametrize("api", NAMING_TOPICS, ids=lambda api: api.camel_name)
def test_a_rule_for_a_topic_refuses_the_topic_and_not_the_request(api: ApiKey) -> None:
    for version in SERVED_VERSIONS[api]:
        request = with_names(with_an_element(request_class(api)()))
        if api is ApiKey.OFFSET_FETCH and version < 8:
            request.groups = []  # type: ignore[attr-defined]
        selected, _ = Selection(topic="one").split(request, lambda _: "one")
        assert selected is not None
        asked = _Asked(api, version, 7, "client", selected)
        answer = asked.refused(KafkaError.by_code[LOADING]("injected"), is_of_elements=True)
        assert getattr(answer, "error_code", 0) == 0, f"v{version}"
        assert LOADING in codes_in(asked.decoded(asked.encoded(answer))), f"v{version}"


@pytest.mark.parametrize("api", SERVED_VERSIONS, ids=lambda api: api.camel_name)
def test_a_rule_refuses_every_version_of_every_api(api: ApiKey) -> None:
    for version in SERVED_VERSIONS[api]:
        asked = _Asked(api, version, 7, "client", with_an_element(request_class(api)()))
        answer = asked.refused(KafkaError.by_code[LOADING]("injected"))
        assert codes_in(answer) - {0}, f"v{version}"
        assert asked.encoded(answer)
