"""The command line without a broker, or with one that follows a script: arguments, words, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result
from tests.support.scripted_broker import broker_in_thread

from barnabas import __version__
from barnabas.cli.main import COMMANDS, cli
from barnabas.cli.support.exit_codes import Failure, failure_for
from barnabas.cluster.coordination.contract import StoreLocked
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.compiled import CODE
from barnabas.core.errors import InvalidConfig, NotController, TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

REPOSITORY = Path(__file__).resolve().parents[3]

KAFKA_4 = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""Settings of `config/server.properties` in Apache Kafka 4."""


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin, env={"BARNABAS_BOOTSTRAP": None})


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY / "src", check=True
    )
    return done.stdout.strip()


def test_the_version_is_the_packages() -> None:
    assert invoke("--version").output == f"barnabas {__version__} ({CODE})\n"


def test_help_names_every_command_and_exit_code() -> None:
    output = invoke("--help").output
    assert all(name in output for name in COMMANDS)
    assert "3  no broker could be reached" in output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_summary_in_the_list_is_the_commands_own(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]
    assert invoke(name, "--help").exit_code == 0


def test_help_and_start_import_neither_client_nor_tables() -> None:
    loaded = python(
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from barnabas.cli.main import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(cli, ['start', '--set', 'nonsense=1']).exit_code == 2\n"
        "print([name for name in sys.modules if name.startswith(('rich', 'barnabas.client', 'asyncio'))])"
    )
    assert loaded == "[]"


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant() -> None:
    result = invoke("topc", "list")
    assert result.exit_code == 2
    assert "No such command 'topc'. Did you mean 'topic'?" in result.output
    assert "Did you mean" not in invoke("xyzzy").output


def _obey_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interruption_of_the_imports_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n1 / 0\n")
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "topic", "list"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY / 'src'}"},
        capture_output=True,
        preexec_fn=_obey_interrupts,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


@click.command()
def interrupted() -> None:
    raise KeyboardInterrupt


def test_an_interruption_has_its_exit_code_whatever_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "wait", (f"{__name__}:interrupted", "Wait."))
    result = invoke("wait")
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("brokers", [(), ("--brokers", "2", "--console", "off")])
def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path, brokers: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    result = invoke("start", "--data-dir", str(file), *brokers)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith(f"barnabas: cannot use {file}")
    assert line.endswith("; choose another --data-dir (log.dirs)")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "_BARNABAS_COMPLETE" in invoke("completion", shell).output


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BrokerConfig, tuple[str, int] | None]]:
    """Configurations that `barnabas start` would have run."""
    calls: list[tuple[BrokerConfig, tuple[str, int] | None]] = []
    stand_in = ModuleType("barnabas.node.main")

    def run(config: BrokerConfig, metrics_address: tuple[str, int] | None, _: object, **_more: object) -> int:
        calls.append((config, metrics_address))
        return 7

    stand_in.run = run  # type: ignore[attr-defined]
    stand_in.StartupFailed = OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "barnabas.node.main", stand_in)
    return calls


def test_start_turns_options_into_configuration(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]], tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=3\nnum.partitions=2\nlog.dirs=/elsewhere\n")
    result = invoke(
        "start", "--config", str(properties), "--data-dir", str(tmp_path), "--broker-id", "5",
        "--listener", "PLAINTEXT://127.0.0.1:0", "--listener", "LOCAL://[::1]:1",
        "--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT",
        "--set", "num.partitions=9", "--metrics", "[::1]:9100",
    )  # fmt: skip
    assert result.exit_code == 7
    ((config, metrics_address),) = started
    assert config.log_dirs == (tmp_path,)
    assert config.broker_id == 5
    assert config.num_partitions == 9
    assert [str(at) for at in config.listeners] == ["PLAINTEXT://127.0.0.1:0", "LOCAL://[::1]:1"]
    assert metrics_address == ("::1", 9100)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "log.segmnt.bytes=1"], "did you mean log.segment.bytes"),
        (["--set", "process.roles=controller"], "KRaft"),
        (["--set", "node.id=1", "--set", "broker.id=2"], "the id of the broker is broker.id"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--config", "/no/such/file"], "cannot read /no/such/file: No such file"),
        (["--metrics", "nowhere"], "HOST:PORT"),
        (["--broker-id", "x"], "whole number"),
        (["--listener", "localhost"], "NAME://HOST:PORT"),
    ],
)
def test_start_refuses_what_it_cannot_do(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]], arguments: list[str], words: str
) -> None:
    result = invoke("start", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert started == []


def test_the_server_properties_of_kafka_4_start_a_broker(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]], tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(KAFKA_4)
    result = invoke("start", "--config", str(properties), "--data-dir", str(tmp_path))
    assert result.exit_code == 7, result.output
    ((config, _),) = started
    assert config.broker_id == 1
    assert [str(at) for at in config.listeners] == ["PLAINTEXT://:9092"]
    assert [*config.advertised_listeners] == ["PLAINTEXT"]
    assert config.zookeeper_connect is None
    assert result.stderr == (
        "barnabas: settings of KRaft: node.id 1 is used as broker.id; without effect in this broker:"
        " controller.listener.names, controller.quorum.bootstrap.servers, process.roles,"
        " share.coordinator.state.topic.min.isr, share.coordinator.state.topic.replication.factor,"
        " listener CONTROLLER\n"
    )


@pytest.mark.parametrize("option", [["--broker-id", "5"], ["--set", "broker.id=5"], ["--set", "node.id=5"]])
def test_an_option_wins_over_the_id_of_the_file(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]], tmp_path: Path, option: list[str]
) -> None:
    for key in ("node.id", "broker.id"):
        properties = tmp_path / "server.properties"
        properties.write_text(f"{key}=1\n")
        invoke("start", "--config", str(properties), "--data-dir", str(tmp_path), *option)
    assert [config.broker_id for config, _ in started] == [5, 5]


def test_all_problems_of_a_file_are_named_at_once(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]], tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=controller\ncontroller.quorum.voters=1@a:9093,2@b:9093\nnum.partitions=0\n"
    )
    result = invoke("start", "--config", str(properties), "--data-dir", str(tmp_path))
    assert result.exit_code == 2
    assert "barnabas: 3 problems: (1) configuration key 'process.roles' is not supported" in result.stderr
    assert "(2) configuration key 'controller.quorum.voters' is not supported" in result.stderr
    assert "(3) invalid value '0' for num.partitions: must be at least 1" in result.stderr
    assert started == []


def test_a_start_that_fails_is_one_line_and_code_1(
    started: list[tuple[BrokerConfig, tuple[str, int] | None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(error: Exception) -> Result:
        def run(
            config: BrokerConfig, metrics_address: tuple[str, int] | None, _: object, **_more: object
        ) -> int:
            raise error

        monkeypatch.setattr(sys.modules["barnabas.node.main"], "run", run)
        return invoke("start", "--data-dir", str(tmp_path))

    result = fail(OSError("[Errno 98] cannot listen on 127.0.0.1:9092: Address already in use"))
    assert result.exit_code == 1
    assert result.stderr == "barnabas: cannot listen on 127.0.0.1:9092: Address already in use\n"
    result = fail(StoreLocked("coordination"))
    assert result.exit_code == 1
    assert result.stderr == (
        f"barnabas: another broker is running on {tmp_path}; stop it, or choose another --data-dir\n"
    )

    refused = OSError("INVALID_CONFIG: GSSAPI is not offered here")
    refused.__cause__ = InvalidConfig("GSSAPI is not offered here")
    result = fail(refused)
    assert result.exit_code == 2
    assert result.stderr == "barnabas: GSSAPI is not offered here\n"


def test_an_unreachable_broker_is_one_line_and_code_3() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "topic", "list", "--bootstrap", "127.0.0.1:1"],
        capture_output=True, text=True, cwd=REPOSITORY / "src", check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr == (
        "barnabas: cannot reach 127.0.0.1:1 (connection refused): is a broker running?"
        " start one with 'barnabas start'\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["topic", "list", "--bootstrap", "nowhere"],
        ["--bootstrap", "a:b", "topic", "list"],
        ["topic", "create"],
        ["topic", "alter", "t"],
        ["topic", "delete"],
        ["config", "set", "topic", "t"],
        ["config", "get", "broker", "x"],
        ["config", "get", "user", "x"],
        ["consume", "t", "--from-beginning", "--offset", "1"],
        ["consume", "t", "--timestamp", "yesterday"],
        ["produce", "t", "--json", "--key-separator", ":"],
        ["produce", "t", "--codec", "zip"],
        ["produce", "t", "--header", "x"],
        ["log", "dump"],
    ],
)
def test_wrong_usage_is_code_2_before_anything_is_connected(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert "Error" in result.stderr


def test_a_missing_file_is_code_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("barnabas.storage.dump")
    stand_in.dump_file = lambda path, **options: iter([f"{path.name} {options}"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "barnabas.storage.dump", stand_in)
    present = tmp_path / "0.log"
    present.touch()
    result = invoke("log", "dump", str(present), str(tmp_path / "1.log"), "--data")
    assert result.stdout == "0.log {'print_data': True, 'deep': True}\n"
    assert result.exit_code == 4
    assert result.stderr == f"barnabas: there is no file {tmp_path / '1.log'}\n"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (failure_for(UnknownTopicOrPartition("there is no topic t")), 4, "there is no topic t"),
        (failure_for(TopicAlreadyExists("it is there")), 5, "it is there"),
        (failure_for(InvalidConfig("no such key")), 1, "no such key (INVALID_CONFIG)"),
        (failure_for(NotController()), 1, "NOT_CONTROLLER"),
    ],
)
def test_a_brokers_error_has_a_code_and_words(failure: Failure, code: int, message: str) -> None:
    assert failure.exit_code == code
    assert failure.message == message


def test_the_nearer_bootstrap_wins() -> None:
    topics = [
        MetadataResponseTopic(
            name="b", partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)]
        ),
        MetadataResponseTopic(name="__consumer_offsets", is_internal=True),
    ]
    with broker_in_thread({}) as broker:
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
        broker.script[ApiKey.METADATA] = lambda _request, _version: MetadataResponse(
            brokers=[node], topics=topics
        )
        there, nowhere = str(broker.address), "127.0.0.1:1"
        runner = CliRunner()
        for environment, arguments in (
            (there, ["topic", "list"]),
            (nowhere, ["--bootstrap", there, "topic", "list"]),
            (nowhere, ["--bootstrap", nowhere, "topic", "list", "--bootstrap", there]),
            (nowhere, ["topic", "list", "--bootstrap", f"{nowhere},{there}"]),
        ):
            result = runner.invoke(cli, arguments, env={"BARNABAS_BOOTSTRAP": environment})
            assert (result.exit_code, result.stdout) == (0, "b\n"), result.output
        listed = json.loads(invoke("topic", "list", "--json", "--internal", "--bootstrap", there).stdout)
        assert listed == [{"name": "__consumer_offsets", "partitions": 0}, {"name": "b", "partitions": 1}]


def test_a_second_interruption_of_the_broker_is_no_surprise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*_arguments: object, **_more: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.node.main.run", run)
    result = invoke("start", "--data-dir", str(tmp_path))
    assert result.exit_code == 130
    assert "the next start recovers the logs" in result.output
    assert "Aborted" not in result.output


def test_keys_are_explained_without_a_broker() -> None:
    result = invoke("config", "keys", "--json", "log.segment.bytes")
    assert json.loads(result.output)["log.segment.bytes"]["default"] == 1 << 30
    assert "log.segment.bytes" in invoke("config", "keys").output
    missing = invoke("config", "keys", "no.such.key")
    assert (missing.exit_code, missing.output) == (4, "barnabas: no key has 'no.such.key' in its name\n")
