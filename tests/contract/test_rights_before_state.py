"""Rights come before state: nothing is stored, compiled, matched or created for a client without the right.

A client without any right sends every API of the access table, in every version. The parts of the broker that
keep state record each call. Only calls that the table allows before a right may be among them.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.manual_time import ManualClock
from tests.support.settings import unlimited
from tests.unit.requests import test_refusals
from tests.unit.requests.test_charged_time import AllowNothing
from tests.unit.requests.test_dispatcher_slices import Asker
from tests.unit.requests.test_refusals import sample

from barnabas.core.reporting.metrics import Metrics
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.headers import encode_request
from barnabas.requests.access import ACCESS, BEFORE_RIGHTS
from barnabas.requests.dispatcher import Dispatcher
from barnabas.requests.registry import Api
from barnabas.requests.services import Services

KEEPS_STATE = (
    "acls", "address_of", "configs", "controller", "fetch_sessions", "groups", "internal_topics", "markers",
    "producer_ids", "replicas", "telemetry", "tokens", "topics", "add_partitions_to_txn_manager",
    "transactions", "znodes",
)  # fmt: skip
"""Parts of a broker, as handlers know them."""
KEEPS_NO_STATE = {
    "apis", "authorizer", "broker_id", "clock", "cluster_id", "config", "features", "metadata",
    "metadata_wait", "quotas",
}  # fmt: skip
"""Values, views, rights, and what the dispatcher itself charges. Waiting for metadata is watched too."""


class Part:
    """Records every call; each attribute is another part."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self._name = name
        self._calls = calls

    def __getattr__(self, name: str) -> Part:
        if name.startswith("__"):
            raise AttributeError(name)
        return Part(f"{self._name}.{name}", self._calls)

    def __call__(self, *_: object, **__: object) -> Part:
        self._calls.append(self._name)
        return self


class Nobody(AllowNothing):
    def allows_anywhere(self, *_: object) -> bool:
        return False


class Metadata(SimpleNamespace):
    """Everything that is asked for exists."""

    def __contains__(self, _: object) -> bool:
        return True


def services(calls: list[str]) -> Any:
    partitions = [SimpleNamespace()] * 8
    known = SimpleNamespace(name="x", topic_id=bytes(16), partitions=partitions, is_internal=False)
    metadata = Metadata(
        topic=lambda _: known,
        topic_by_id=lambda _: known,
        topics=lambda: [known],
        topic_names=lambda: ["x"],
        partition=lambda *_: SimpleNamespace(),
        brokers=list,
        broker=lambda _: None,
        live_brokers=list,
        controller_id=1,
    )
    parts = {name: Part(name, calls) for name in KEEPS_STATE}
    config = SimpleNamespace(
        auto_create_topics_enable=True, max_request_partition_size_limit=100, num_partitions=1
    )
    return SimpleNamespace(
        quotas=unlimited(),
        authorizer=Nobody(),
        metadata=metadata,
        clock=ManualClock(),
        config=config,
        cluster_id="c",
        broker_id=1,
        features={},
        apis=APIS,
        metadata_wait=Part("metadata_wait", calls),
        **parts,
    )


async def touched(api: Api, version: int) -> set[str]:
    """Work of a broker for a client without rights."""
    calls: list[str] = []
    dispatcher = Dispatcher(APIS, services(calls), ManualClock(), Metrics())
    request = sample(request_class(api.key), version)
    parts: Any = encode_request(api.key, version, 1, "client", request)
    Asker().ask(dispatcher, bytearray(b"".join(parts)))
    for _ in range(20):
        await asyncio.sleep(0)
    await dispatcher.close()
    return set(calls)


ASKING = [api for api in APIS if ACCESS[api.key]]


@pytest.mark.parametrize("number", [0, 2, 7])
@pytest.mark.parametrize("api", ASKING, ids=lambda api: api.key.name)
async def test_rights_come_before_state(api: Api, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in the request stand for types of resources, partitions and brokers."""
    monkeypatch.setattr(test_refusals, "NUMBER", number)
    for version in api.versions:
        early = await touched(api, version)
        assert early <= BEFORE_RIGHTS.get(api.key, frozenset()), version


def test_every_part_of_a_broker_is_watched() -> None:
    assert {each.name for each in fields(Services)} == {*KEEPS_STATE, *KEEPS_NO_STATE}


def test_the_table_excuses_only_apis_that_ask_for_a_right() -> None:
    assert set(BEFORE_RIGHTS) <= {key for key in ApiKey if ACCESS.get(key)}
