"""Options that Spark may show: no secret is among them."""

from __future__ import annotations

import pytest

from barnabas.pipelines.spark.context.connector import client_options
from barnabas.pipelines.spec.model import Part


def test_a_secret_stays_the_reference_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    monkeypatch.setenv("CLIENT", "me")
    jaas = 'PlainLoginModule required username="a" password="${env:KAFKA_PASSWORD}";'
    part = Part("topic", {"kafka": {"sasl.jaas.config": jaas, "kafka.client.id": "${env:CLIENT}"}})
    assert client_options(part) == {"kafka.sasl.jaas.config": jaas, "kafka.client.id": "me"}
    assert "s3cret" in client_options(part, engine="jvm")["kafka.sasl.jaas.config"], (
        "which follows no reference"
    )
    assert client_options(Part("topic", {})) == {}
