"""Commands of a user without rights: the message names the right that is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.testing.broker import run_broker
from tests.scenario.cli.command import Barnabas
from tests.support.ports import free_port

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def barnabas(bootstrap: str, *arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, ["--bootstrap", bootstrap, *arguments])
    return ended.exit_code, ended.output.splitlines()[-1]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose clients may describe the topic `seen`, and nothing else."""
    directory, everybody = tmp_path_factory.mktemp("refusals"), "User:ANONYMOUS"
    with run_broker({**AUTHORIZER, "super.users": everybody}, data_dir=directory) as broker:
        for topic in ("seen", "hidden"):
            assert barnabas(broker.bootstrap, "topic", "create", topic)[0] == 0
        rule = ("--allow-principal", everybody, "--operation", "Describe", "--topic", "seen")
        assert barnabas(broker.bootstrap, "acl", "add", *rule)[0] == 0
    with run_broker({**AUTHORIZER, "super.users": "User:admin"}, data_dir=directory) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("leader elect", "ALTER on CLUSTER kafka-cluster"),
        ("leader elect --topic seen", "ALTER on CLUSTER kafka-cluster"),
        ("records delete hidden --all", "DESCRIBE on TOPIC hidden"),
        ("records delete seen --all", "DELETE on TOPIC seen"),
        ("group delete readers", "DESCRIBE on GROUP readers"),
        ("topic delete seen", "DELETE on TOPIC seen"),
        ("topic create new", "CREATE on TOPIC new"),
        ("consume hidden --count 1", "DESCRIBE on TOPIC hidden"),
    ],
)
def test_the_missing_right_is_named(bootstrap: str, command: str, right: str) -> None:
    code, line = barnabas(bootstrap, *command.split())
    kind = right.split()[2]
    assert (code, line) == (1, f"barnabas: not authorized: {right} ({kind}_AUTHORIZATION_FAILED)")


def test_a_topic_that_needs_more_brokers_says_how_many_there_are() -> None:
    with run_broker({"default.replication.factor": "3"}) as broker:
        said = Barnabas(broker.bootstrap)("produce", "new", stdin=b"x\n", code=1)
    assert said.startswith(
        "barnabas: topic new cannot be created: the brokers' default.replication.factor is larger than the"
        " number of live brokers, 1 (INVALID_REPLICATION_FACTOR)"
    )


def test_a_pipeline_service_that_is_not_there_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, line = barnabas("127.0.0.1:1", "pipeline", "list", "--url", url)
    assert code == 3
    assert line.startswith(f"barnabas: no pipeline service at {url}: Connection refused; start one with")
