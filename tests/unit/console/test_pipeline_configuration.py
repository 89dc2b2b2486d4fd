"""Configurations of pipelines without their secrets."""

from __future__ import annotations

import json

import pytest

from barnabas.console.pages.pipelines.configuration import HIDDEN, editable, parsed
from barnabas.console.web.context import Refused

KNOWN = {
    "connector.class": "Jdbc",
    "connection.password": "hunter2",
    "sasl.jaas.config": 'module required password="hunter2";',
    "database.password": "${env:DATABASE_PASSWORD}",
    "pipeline.spec": '{"source": {"type": "rate"}}',
}


def test_secrets_are_hidden_and_kept() -> None:
    shown = editable(KNOWN)
    assert "hunter2" not in shown
    found = json.loads(shown)
    assert found["connection.password"] == found["sasl.jaas.config"] == HIDDEN
    assert found["database.password"] == "${env:DATABASE_PASSWORD}"
    assert found["pipeline.spec"] == {"source": {"type": "rate"}}
    found["connector.class"] = "Another"
    written = parsed(json.dumps(found), KNOWN)
    assert written["connection.password"] == "hunter2"
    assert written["connector.class"] == "Another"
    changed = parsed(json.dumps({**found, "connection.password": "new"}), KNOWN)
    assert changed["connection.password"] == "new"


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"password": "(hidden)"}', "[" * 100_000])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parsed(text, {})
