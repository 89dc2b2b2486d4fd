"""References that a configuration from outside may make: files, addresses of tokens, variables, code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import InvalidConfig
from barnabas.pipelines.service.config_provider_policy import (
    NOTHING_ALLOWED,
    PATHS,
    URLS,
    VARIABLES,
    Allowances,
)
from barnabas.pipelines.spec.validation import load_document

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


def complaints(allowances: Allowances, kafka: dict[str, str] | None = None, **sections: Any) -> list[str]:
    source = {"type": "topic", "topics": ["in"], "schema": "id BIGINT", "kafka": kafka or {}}
    sink = {"type": "files", "path": "out", "format": "json"}
    document = {"name": "p", "source": source, "sink": sink, **sections}
    return list(allowances.complaints(load_document(document)))


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "password").write_text("p=x\n")
    (tmp_path / "outside").write_text("p=x\n")
    (directory / "link").symlink_to(tmp_path / "outside")
    return directory


@pytest.fixture
def allowed(secrets: Path) -> Allowances:
    return Allowances.of({PATHS: f"{secrets}, /nowhere", URLS: "https://issuer.test/token"})


def test_files_are_named_inside_of_what_is_allowed(allowed: Allowances, secrets: Path) -> None:
    inside = {"ssl.keystore.password": f"${{file:{secrets}/password:p}}"}
    inside |= {"ssl.truststore.location": f"{secrets}/ca.pem", TOKEN_URL: f"file://{secrets}/token"}
    assert complaints(allowed, inside) == []
    assert len(complaints(NOTHING_ALLOWED, inside)) == 3


@pytest.mark.parametrize("place", ["{}/../outside", "/etc/passwd", "{}/link", "{}-more/x", "relative"])
def test_no_reference_leads_outside(allowed: Allowances, secrets: Path, place: str) -> None:
    path = place.format(secrets)
    by_reference = {"ssl.keystore.password": f"${{file:{path}:p}}"}
    for settings in (by_reference, {"ssl.keystore.location": path}, {"kafka.ssl.ca.location": path}):
        (complaint,) = complaints(allowed, settings)
        assert PATHS in complaint
    for hidden in (f"${{file:{path}}}", f"x${{env:A}}${{file:{path}:p}}"):
        transforms = [{"type": "sql", "query": f"SELECT '{hidden}' AS x FROM input"}]
        assert sum(PATHS in each for each in complaints(allowed, transforms=transforms)) == 1


def test_a_reference_is_no_place_for_a_store(allowed: Allowances) -> None:
    assert len(complaints(allowed, {"ssl.keystore.location": "${env:ANYWHERE}"})) == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "https://elsewhere.test/token",
        "http://169.254.169.254/x",
        "file://host/x",
        "${env:U}",
    ],
)
def test_tokens_come_from_where_they_may(allowed: Allowances, url: str) -> None:
    assert complaints(allowed, {TOKEN_URL: "https://issuer.test/token"}) == []
    (complaint,) = complaints(allowed, {TOKEN_URL: url})
    assert URLS in complaint


def test_variables_may_be_limited() -> None:
    settings = {"ssl.key.password": "${env:PIPELINE_KEY}", "client.id": "${env:HOME}"}
    assert complaints(NOTHING_ALLOWED, settings) == []
    (complaint,) = complaints(Allowances.of({VARIABLES: "PIPELINE_.*"}), settings)
    assert "${env:HOME} is not a variable" in complaint
    with pytest.raises(InvalidConfig, match="is not a regular expression"):
        Allowances.of({VARIABLES: "("})


@pytest.mark.parametrize(
    "name",
    ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.executor.extraJavaOptions",
     "spark.plugins", "spark.submit.pyFiles", "spark.sql.extensions", "spark.driver.defaultJavaOptions",
     "spark.executor.userClassPathFirst", "spark.pyspark.python"],
)  # fmt: skip
def test_no_code_is_loaded_into_spark_from_outside(name: str) -> None:
    harmless = {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "1g"}
    (complaint,) = complaints(NOTHING_ALLOWED, spark={"conf": {name: "x", **harmless}})
    assert complaint.startswith(f"{name} loads code")
