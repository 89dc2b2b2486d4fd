"""Each row of the table of rights, on real sockets: tried with the right and without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.message import Message
from barnabas.requests.access import ACCESS, Check, Denied
from barnabas.security.acl.vocabulary import DENIED
from tests.scenario.security.callers import SETTINGS
from tests.scenario.security.requests import CASES, NAMES, World
from tests.scenario.security.trial import ALLOWED, answers, error_codes, prepare, values
from tests.support.broker import Broker, running
from tests.support.fixtures import chosen_broker

AUTHORIZATION_CODES = frozenset(error.code for error in DENIED.values())
ELSEWHERE = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""Tried with what they are about."""

ROWS = [
    pytest.param(key, place, id=f"{key.name.lower()}-{place}")
    for key, cases in CASES.items()
    for place in range(len(cases))
]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(chosen_broker(request.config, tmp_path_factory.mktemp("acl"), **SETTINGS)) as started:
        yield started


@pytest.fixture(scope="module")
def world(broker: Broker) -> World:
    return asyncio.run(prepare(Endpoint(broker.host, broker.port)))


@pytest.mark.parametrize(("key", "place"), ROWS)
def test_a_row_of_the_table_decides(key: ApiKey, place: int, broker: Broker, world: World) -> None:
    heard = asyncio.run(answers(key, place, Endpoint(broker.host, broker.port), world))
    case, check = CASES[key][place], ACCESS[key][place]
    hidden = case.hidden(world) if case.hidden else NAMES.get(check.rights[-1].resource_type)
    check_allowed(check, heard.pop(ALLOWED), hidden)
    for answer in heard.values():
        check_denied(check, answer, hidden)


def check_denied(check: Check, answer: Message, hidden: object) -> None:
    if check.denied is Denied.LEFT_OUT:
        assert hidden not in values(answer)
    elif check.denied is Denied.BITS:
        assert answer.cluster_authorized_operations == 0  # type: ignore[attr-defined]
    else:
        assert error_codes(answer) & AUTHORIZATION_CODES, answer


def check_allowed(check: Check, answer: Message, hidden: object) -> None:
    assert not error_codes(answer) & AUTHORIZATION_CODES, answer
    if check.denied is Denied.LEFT_OUT:
        assert hidden in values(answer)
    elif check.denied is Denied.BITS:
        assert answer.cluster_authorized_operations > 0  # type: ignore[attr-defined]


def test_every_api_for_clients_is_tried() -> None:
    needing = {api.key for api in APIS.for_clients() if ACCESS[api.key]}
    assert needing - ELSEWHERE == set(CASES)
