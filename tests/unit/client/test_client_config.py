"""Settings of the client library: sources, precedence, suggestions, and rows that match the attributes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.config.common import CONNECTIONS, SECURITY, WITHOUT_EFFECT
from barnabas.client.config.foreign_keys import INSTEAD
from barnabas.client.config.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from barnabas.client.config.sources import variable_of
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig

BOOTSTRAP = {"bootstrap.servers": "127.0.0.1:9092"}
KINDS = (ProducerSettings, ConsumerSettings, AdminSettings)
WITHOUT_ATTRIBUTE = {"bootstrap.servers", "client.dns.lookup"} | {
    key.name for key in (*SECURITY, *WITHOUT_EFFECT)
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_has_a_typed_attribute_and_the_reverse(kind: type[ClientSettings]) -> None:
    attributes = set(get_type_hints(kind)) - {"definition", "bootstrap", "security"}
    rows = {name.replace(".", "_") for name in kind.definition if name not in WITHOUT_ATTRIBUTE}
    assert attributes == rows


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_passes_its_own_check(kind: type[ClientSettings]) -> None:
    for key in kind.definition.values():
        if key.default is not None:
            rendered = key.render(key.default)
            assert rendered is not None
            assert key.parse(rendered) == key.default, key.name
        assert key.doc, key.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_a_keyword_and_a_variable_of_its_own(kind: type[ClientSettings]) -> None:
    assert len({variable_of(name) for name in kind.definition}) == len(kind.definition)


def test_keywords_win_over_the_dict_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=1\nbatch.size=1\nbuffer.memory=1\nacks=1\nbootstrap.servers=a:1\n")
    environment = {"BARNABAS_BATCH_SIZE": "2", "BARNABAS_BUFFER_MEMORY": "2", "BARNABAS_ACKS": "0"}
    settings = ProducerSettings.load(
        {"buffer.memory": "3", "acks": "all"},
        file=file,
        environment=environment | {"BARNABAS_HOME": "elsewhere"},
        keywords={"acks": 0},
    )
    assert (settings.linger_ms, settings.batch_size) == (1, 2)
    assert (settings.buffer_memory, settings.acks) == (3, "0")
    assert settings.bootstrap == (Endpoint("a", 1),)


@pytest.mark.parametrize(
    ("given", "keywords", "words"),
    [
        ({"linger.msec": "1"}, {}, "linger.ms"),
        ({}, {"linger_msec": 1}, "linger.ms"),
        ({"group.id": "g"}, {}, "unknown configuration key 'group.id'"),
        ({"batch.size": "many"}, {}, "whole number"),
        ({"batch.size": -1}, {}, "at least 0"),
        ({"batch.size": 2**31}, {}, "32 bits"),
        ({"batch.size": object()}, {}, "object"),
        ({"acks": "2"}, {}, "one of all"),
        ({"enable.idempotence": True, "acks": "1"}, {}, "acks=all"),
        ({"enable.idempotence": True, "max.in.flight.requests.per.connection": 6}, {}, "at most 5"),
        ({"enable.idempotence": False, "transactional.id": "t"}, {}, "transactional.id needs"),
        ({"transactional.id": ""}, {}, "transactional.id is empty"),
        ({"delivery.timeout.ms": 1_000}, {}, "delivery.timeout.ms is 1000"),
        ({"security.protocol": "SSH"}, {}, "security.protocol is one of"),
        ({"sasl.login.class": "com.example.Login"}, {}, "loads code"),
        ({"bootstrap.servers": "nowhere"}, {}, "HOST:PORT"),
        ({"bootstrap.servers": ""}, {}, "bootstrap.servers is missing"),
    ],
)
def test_faults_are_named(given: dict[str, Any], keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerSettings.load(BOOTSTRAP | given, keywords=keywords)
    assert words in raised.value.message


def test_idempotence_gives_way_only_where_it_was_not_asked_for() -> None:
    assert ProducerSettings.load(BOOTSTRAP).enable_idempotence
    assert not ProducerSettings.load(BOOTSTRAP, keywords={"acks": 1}).enable_idempotence
    assert not ProducerSettings.load(BOOTSTRAP, keywords={"retries": 0}).enable_idempotence


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"missing\.properties"):
        ProducerSettings.load(BOOTSTRAP, file=tmp_path / "missing.properties")


def test_lists_and_numbers_are_taken_as_they_are() -> None:
    settings = ConsumerSettings.load(
        keywords={"bootstrap_servers": ["a:1", "b:2"], "partition_assignment_strategy": ["sticky"]}
    )
    assert settings.bootstrap == (Endpoint("a", 1), Endpoint("b", 2))
    assert settings.partition_assignment_strategy == ["sticky"]
    assert {key.name for key in CONNECTIONS} < set(settings.values)


@pytest.mark.parametrize(
    ("given", "keywords", "words"),
    [
        ({"queue.buffering.max.ms": 5}, {}, "here: linger.ms"),
        ({"interceptor.classes": "Traced"}, {}, "here: the argument `interceptors`"),
        ({}, {"max_batch_size": 1}, "here: batch.size"),
        ({}, {"ssl_cafile": "ca.pem"}, "here: ssl.ca.location"),
    ],
)
def test_keys_of_other_clients_are_refused_with_the_one_here(
    given: dict[str, Any], keywords: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerSettings.load(BOOTSTRAP | given, keywords=keywords)
    assert words in raised.value.message


def test_every_key_that_is_named_instead_is_there() -> None:
    ours = {name for kind in KINDS for name in kind.definition}
    assert not INSTEAD.keys() & ours
    named = {word for text in INSTEAD.values() for word in re.findall(r"[a-z]+(?:\.[a-z0-9]+)+", text)}
    assert named - ours == {"producer.metrics"}
