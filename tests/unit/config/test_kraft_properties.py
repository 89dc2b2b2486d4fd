"""Properties of KRaft: the part that a broker can do without, and the part that stays to be refused."""

from __future__ import annotations

import pytest

from barnabas.config.kraft_properties import translate


def test_properties_without_kraft_stay_as_they_are() -> None:
    given = {"broker.id": "3", "listeners": "PLAINTEXT://:9092", "log.dirs": "/data"}
    assert translate(given) == (given, [], None)
    assert translate(given).warning is None


def test_settings_of_controllers_are_left_out_with_their_listeners() -> None:
    found = translate(
        {
            "process.roles": "broker, controller",
            "node.id": "7",
            "listeners": "PLAINTEXT://:9092, CONTROLLER://:9093",
            "advertised.listeners": "CONTROLLER://here:9093",
            "controller.listener.names": "controller",
            "controller.quorum.fetch.timeout.ms": "2000",
            "listener.name.controller.ssl.client.auth": "required",
            "metadata.log.dir": "/metadata",
        }
    )
    assert found.properties == {"broker.id": "7", "listeners": "PLAINTEXT://:9092"}
    assert found.node_id == "7"
    assert found.ignored == [
        "controller.listener.names",
        "controller.quorum.fetch.timeout.ms",
        "listener.name.controller.ssl.client.auth",
        "metadata.log.dir",
        "process.roles",
        "listener CONTROLLER",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"process.roles": "controller"},
        {"process.roles": "broker,driver"},
        {"process.roles": ""},
        {"node.id": "1", "broker.id": "2"},
        {"controller.quorum.voters": "1@a:9093,2@b:9093"},
        {"controller.quorum.bootstrap.servers": "a:9093,b:9093"},
        {"unstable.api.versions.enable": "true"},
        {"group.share.enable": "true"},
    ],
)
def test_settings_that_ask_for_another_server_stay_and_are_refused(given: dict[str, str]) -> None:
    assert translate(given) == (given, [], None)


def test_a_quorum_is_replaced_by_zookeeper() -> None:
    given = {"controller.quorum.voters": "1@a:9093,2@b:9093", "zookeeper.connect": "z:2181"}
    assert translate(given).properties == {"zookeeper.connect": "z:2181"}
