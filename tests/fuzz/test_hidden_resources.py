"""A user without rights gets the same bytes in a world with a hidden resource and in a world without it.

Both worlds are one broker, before and after the administrator makes a topic, a group and a transaction. The
requests are the same bytes, so names and their order are the same too. Their APIs come from the access table:
each whose rows name a topic, a group or a transactional id, in every version. `mallory` has no right, and
`reader` may describe other resources, so that answers have pages, lists and filters around the hidden part.

Topic ids are not drawn: as in Apache Kafka, they are no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.core.errors import KafkaError
from barnabas.core.ids import ZERO_UUID
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from barnabas.requests.access import ACCESS
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import ResourceType
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.hidden import hide
from tests.fuzz.pool import Pool
from tests.fuzz.steps import SASL
from tests.fuzz.values import Values
from tests.fuzz.world import OWN_TOPICS, World, make_topics, prepare, restrict
from tests.scenario.security.requests import CASES, GROUP, TOPIC, TRANSACTION
from tests.scenario.security.requests import World as TableWorld
from tests.support import hostile

NAMED = {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID}
APIS_THAT_NAME = [
    api
    for api in APIS.for_clients()
    if api.key not in SASL
    and any(right.resource_type in NAMED for check in ACCESS[api.key] for right in check.rights)
]
DRAWS = 5
"""For each version."""
USERS = ("mallory", "reader")
CLOSED = b"closed"
THROTTLE_AND_CODE_BYTES = 6
KINDS = {
    "hidden-t": ("fuzz-a", "unknown-t", "hiddeo-t"),
    "hidden-g": ("group-a", "unknown-g", "hiddeo-g"),
    "hidden-x": ("txn-a", "unknown-x", "hiddeo-x"),
}
"""Hidden names, each with some that a reader may describe or that do not exist."""
NAME = re.compile(f"hidden-[tgx]|(?:{TOPIC}|{GROUP}|{TRANSACTION})[a-z0-9.]*")

Answers = dict[tuple[str, ApiKey, int, int], bytes]


@cache
def frames(key: ApiKey, version: int) -> list[bytes]:
    """Requests of the table's rows, and drawn ones of any content."""
    drawn = [*_of_rows(key), *_drawn(key, version)]
    found: list[bytes] = []
    for message in [variant for each in drawn for variant in _variants(each)]:
        try:
            frame = hostile.frame_of(key, version, message, len(found) + 1)
        except (KafkaError, TypeError):  # the values do not fit into this version
            continue
        if not isinstance(message, ProduceRequest) or message.acks:  # otherwise nothing is answered
            found.append(frame)
    return found


def _of_rows(key: ApiKey) -> Iterator[Any]:
    """Requests that a row of the table decides."""
    for case in CASES.get(key, []):
        yield case.build(TableWorld(ZERO_UUID, ZERO_UUID, 0, 0))
    if key is ApiKey.LIST_TRANSACTIONS:
        for pattern in ("hidden-x", "hidden-.*", ".*"):
            yield ListTransactionsRequest(transactional_id_pattern=pattern)


def _drawn(key: ApiKey, version: int) -> Iterator[Any]:
    random = Random(f"{key} {version}")
    for _ in range(DRAWS):
        yield Values(random, Pool()).message(request_class(key), version)


def _variants(message: Message) -> Iterator[Any]:
    """With hidden names; with names that are seen and names that do not exist around them; with nulls.

    A name may be drawn for a field of another kind, so each kind of hidden name takes each place.
    """
    yield message
    for hidden in KINDS:
        named = _renamed(message, hidden)
        yield named
        yield _beside_others(named)
        yield _without_structs(named)
    yield _without_structs(message)


def _renamed(value: Any, hidden: str) -> Any:
    """A copy that names one hidden resource wherever it named one."""
    if isinstance(value, Message):
        return type(value)(**{field.name: _renamed(getattr(value, field.name), hidden)
                              for field in value.__schema__.fields})  # fmt: skip
    if isinstance(value, list):
        return [_renamed(each, hidden) for each in value]
    if isinstance(value, str):
        return NAME.sub(hidden, value)
    return value


def _beside_others(value: Any) -> Any:
    """A copy whose arrays of names have other names before and behind."""
    if isinstance(value, Message):
        return type(value)(**{field.name: _beside_others(getattr(value, field.name))
                              for field in value.__schema__.fields})  # fmt: skip
    if not isinstance(value, list):
        return value
    found = next((each for each in KINDS if each in repr(value)), None)
    if found is None:
        return value
    return [_renamed(each, other) for other in (*KINDS[found], found) for each in value]


def _without_structs(message: Message) -> Any:
    """A copy without cursors and other structs that may be null: a wrong one refuses the whole request."""
    fields = message.__schema__.fields
    values = {field.name: getattr(message, field.name) for field in fields}
    optional = {field.name for field in fields if field.nullable and field.kind.message is not None}
    return type(message)(**{name: None if name in optional else value for name, value in values.items()})


def answers(world: World) -> Answers:
    return {
        (user, api.key, version, number): _without_session(api.key, version, answer)
        for user in USERS
        for api in APIS_THAT_NAME
        for version in api.versions
        for number, answer in enumerate(answers_of(world, user, frames(api.key, version)))
    }


def _without_session(key: ApiKey, version: int, answer: bytes) -> bytes:
    """Without the id of a fetch session, which is drawn by chance."""
    if key is not ApiKey.FETCH or version < 7 or answer == CLOSED:
        return answer
    position = read_response_header(memoryview(answer), key, version)[1] + THROTTLE_AND_CODE_BYTES
    return answer[:position] + answer[position + 4 :]


def answers_of(world: World, user: str, asked: list[bytes]) -> Iterator[bytes]:
    connection: Connection | None = None
    for frame in asked:
        if connection is None:
            connection = world.connect(user, 60.0)
        try:
            connection.send(frame)
            yield connection.one_answer()
        except Closed:
            yield CLOSED
            connection = None
    if connection is not None:
        connection.close()


@pytest.mark.timeout(600)
def test_a_hidden_resource_changes_no_byte(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start()
    try:
        prepare(world, OWN_TOPICS)
        restrict(world, "reader")
        without = answers(world)
        assert answers(world) == without, "answers differ by themselves"
        make_topics(world, ["hidden-t"])
        hide(world)
        with_hidden = answers(world)
    finally:
        world.kill()
    told_apart = [
        f"{user}: {key.name} v{version}, request {number}: {with_hidden[case].hex()} if hidden,"
        f" {without[case].hex()} if not there: {frames(key, version)[number].hex()}"
        for case in without
        if with_hidden[case] != without[case]
        for user, key, version, number in [case]
    ]
    assert not told_apart, f"{len(told_apart)} of {len(without)}:\n" + "\n".join(told_apart[:5])


@pytest.mark.parametrize("api", APIS_THAT_NAME, ids=lambda api: api.key.name)
def test_requests_name_what_is_hidden(api: Api) -> None:
    """Otherwise the comparison says nothing about their API."""
    if api.key is ApiKey.LIST_GROUPS:
        return  # its requests name no resource, its responses do
    asked = [frame for version in api.versions for frame in frames(api.key, version)]
    assert all(any(name.encode() in frame for frame in asked) for name in KINDS)
