"""`barnabas console --cluster`: which clusters a console has, and which properties each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.cli.support.console_clusters import CLUSTERS_MAX, clusters_of
from barnabas.cli.support.exit_codes import InvalidSettings
from barnabas.core.addressing.endpoints import Endpoint


def test_an_address_or_a_file_makes_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    file.write_text("bootstrap.servers=b:9092,c:9092\nconsole.read.only=true\nsecurity.protocol=SSL\n")
    listener = {"listener.name.console.ssl.keystore.location": "/page.pem"}
    one, two = clusters_of(["a.1=a:1,[::1]:2", f"B={file}"], listener)
    assert one == ("a.1", (Endpoint("a", 1), Endpoint("::1", 2)), listener)
    assert two.bootstrap == (Endpoint("b", 9092), Endpoint("c", 9092))
    assert two.properties["console.read.only"] == "true"
    assert two.properties["security.protocol"] == "SSL"
    assert listener.items() <= two.properties.items()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["a:9092"], "write NAME=HOST:PORT"),
        (["=a:9092"], "write NAME=HOST:PORT"),
        (["../x=a:9092"], "write NAME=HOST:PORT"),
        (["a/b=a:9092"], "write NAME=HOST:PORT"),
        (["a;b=a:9092"], "write NAME=HOST:PORT"),
        ([f"{'a' * 41}=a:9092"], "write NAME=HOST:PORT"),
        (["a=nowhere.properties"], "neither HOST:PORT nor a file"),
        (["a="], "no usable bootstrap.servers"),
        (["a=a:1", "a=b:1"], "given twice"),
        ([f"a{number}=a:1" for number in range(CLUSTERS_MAX + 1)], f"at most {CLUSTERS_MAX}"),
    ],
)
def test_what_is_no_cluster_is_refused(given: list[str], reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        clusters_of(given, {})


def test_a_login_for_all_clusters_is_refused() -> None:
    """It would be sent to brokers that have nothing to do with it."""
    for key in ("sasl.jaas.config", "security.protocol", "schema.registry.url", "console.read.only"):
        with pytest.raises(InvalidSettings, match=f"{key}, which is of one cluster"):
            clusters_of(["a=a:1"], {key: "x"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("security.protocol=SSL", "no usable bootstrap.servers"),
        ("bootstrap.servers=a:1\nlistener.name.console.ssl.client.auth=required", "is of the listener"),
        ("bootstrap.servers=a:1\nno.such.key=1", "no.such.key"),
    ],
)
def test_what_a_file_cannot_have(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "a.properties"
    file.write_text(text)
    with pytest.raises(InvalidSettings, match=reason):
        clusters_of([f"a={file}"], {})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--bootstrap", "a:1"], "write bootstrap.servers into the file"),
        (["--pipelines", "http://a:1"], "write console.pipelines.url into the file"),
        (["--schema-registry", "http://a:1"], "write schema.registry.url into the file"),
    ],
)
def test_options_of_one_cluster_are_refused(options: list[str], reason: str) -> None:
    found = CliRunner().invoke(cli, ["console", "--cluster", "a=a:1", *options])
    assert found.exit_code != 0
    assert reason in " ".join(found.output.split())


@pytest.mark.parametrize(("key", "text"), [("console.read.only", "yes"), ("console.colour", "red")])
def test_a_key_of_the_console_is_checked(tmp_path: Path, key: str, text: str) -> None:
    file = tmp_path / "a.properties"
    file.write_text(f"bootstrap.servers=a:1\n{key}={text}\n")
    found = CliRunner().invoke(cli, ["console", "--cluster", f"a={file}"])
    assert found.exit_code != 0
    assert f"--cluster a: {key}" in found.output or f"unknown key {key}" in found.output
