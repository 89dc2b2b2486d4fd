"""Client settings in a spec: no secret in plain text, no code, and credentials only where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.options.client_settings import client_settings_complaint
from barnabas.pipelines.spec.own_cluster import of_properties, own_client_settings, with_client_settings
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load_document

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS = {"security.protocol": "SASL_SSL", "sasl.jaas.config": "${env:JAAS}"}


def spec(source: dict[str, Any], sink: dict[str, Any]) -> PipelineSpec:
    return load_document(
        {
            "name": "p",
            "source": {"type": "topic", "topics": ["in"], "schema": "id BIGINT", **source},
            "sink": {"type": "topic", "topic": "out", **sink},
        }
    )


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        {"kafka.sasl.jaas.config": f'{SCRAM} username="a" password="${{env:P}}";'},
        {"sasl.jaas.config": 'PlainLoginModule required username="a" password="${file:secrets:p}";'},
        {"ssl.keystore.password": "${file:secrets:p}", "ssl.keystore.location": "k.p12"},
        {"client.id": "me"},
    ],
)
def test_references_are_taken(settings: dict[str, str]) -> None:
    assert client_settings_complaint(settings) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sasl.jaas.config": f'{SCRAM} username="a" password="hidden";'}, "its password in plain text"),
        ({"sasl.jaas.config": f'{SCRAM} username="a" password="${{env:P}}hidden";'}, "in plain text"),
        ({"sasl.jaas.config": 'OAuthBearerLoginModule required clientSecret="hidden";'}, "its clientSecret"),
        ({"kafka.ssl.keystore.password": "hidden"}, "ssl.keystore.password is a secret in plain text"),
        ({"ssl.keystore.key": "-----BEGIN hidden"}, "ssl.keystore.key is a secret in plain text"),
    ],
)
def test_a_secret_in_the_open_is_refused_and_not_shown(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec({"kafka": settings}, {})
    assert complaint in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.login.callback.handler.class": "com.example.Handler"},
        {"kafka.sasl.client.callback.handler.class": "com.example.Handler"},
        {"ssl.engine.factory.class": "com.example.Factory"},
        {"security.providers": "com.example.Provider"},
        {"sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required user.provider.url=x;"},
        {"sasl.jaas.config": "com.sun.security.auth.module.LdapLoginModule required userProvider=x;"},
        {"sasl.jaas.config": "com.example.ScramLoginModule required username=a;"},
    ],
)
def test_no_setting_of_a_spec_loads_code(settings: dict[str, str]) -> None:
    for part in ("source", "sink"):
        with pytest.raises(InvalidSpec, match=r"names (code to load|the login module)"):
            spec(
                {"kafka": settings} if part == "source" else {}, {"kafka": settings} if part == "sink" else {}
            )


def test_credentials_go_to_the_own_cluster_alone() -> None:
    given = with_client_settings(spec({}, {"bootstrap": ["elsewhere:9092"]}), SETTINGS)
    assert given.source["kafka"] == SETTINGS
    assert not given.sink.get("kafka")
    own = {"security.protocol": "SSL"}
    assert with_client_settings(spec({"kafka": own}, {}), SETTINGS).source["kafka"] == own


def test_the_side_of_a_join_gets_them_too() -> None:
    side = {"type": "topic", "topics": ["side"], "schema": "id BIGINT"}
    document = spec({}, {}).to_document() | {"transforms": [{"type": "join", "on": "id", "source": side}]}
    given = with_client_settings(load_document(document), SETTINGS)
    assert given.transforms[0]["source"]["kafka"] == SETTINGS


def test_secrets_of_a_file_become_references_to_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    properties = {"sasl.jaas.config": "open", "ssl.key.password": "${env:K}", "acks": "all"}
    assert of_properties(properties, file) == {
        "sasl.jaas.config": f"${{file:{file}:sasl.jaas.config}}",
        "ssl.key.password": "${env:K}",
    }


def test_dead_letters_go_the_way_of_the_sink_or_of_the_source() -> None:
    other = {"security.protocol": "SSL"}
    assert own_client_settings(spec({"kafka": SETTINGS}, {"kafka": other})) == other
    assert own_client_settings(spec({"kafka": SETTINGS}, {"bootstrap": ["x:1"], "kafka": other})) == SETTINGS
    assert own_client_settings(spec({}, {})) == {}
