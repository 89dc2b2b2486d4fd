"""docs/MONITORING.md and docs/CONSOLE.md: their commands, against a broker and as processes of their own."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BarnabasBroker, running
from tests.support.pages import REPOSITORY, Shell, blocks
from tests.support.ports import free_port, free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S, eventually

MONITORING = "docs/MONITORING.md"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(BarnabasBroker(tmp_path / "data")) as broker:
        yield Shell(tmp_path, broker.bootstrap)


def test_the_commands_of_the_monitoring_page_do_what_it_says(shell: Shell) -> None:
    live, files, subscriptions, _ = blocks(MONITORING, "sh")
    assert live.commands == ["barnabas top"]
    (once,) = re.findall(r"`(barnabas top --once)`", (REPOSITORY / MONITORING).read_text(encoding="utf-8"))
    shell.run("barnabas topic create orders")
    assert "orders" in shell.run(once)
    shell.run(files.text)
    assert json.loads((shell.directory / "barnabas.json").read_text(encoding="utf-8"))["panels"]
    assert "alert:" in (shell.directory / "barnabas-alerts.yml").read_text(encoding="utf-8")
    *before, removal = subscriptions.text.splitlines()
    shown = shell.run("\n".join(before))
    assert re.search(r"^interval\.ms +30000 ", shown, re.MULTILINE)
    shell.run(removal)
    assert "interval.ms" not in shell.run("barnabas config get client-metrics all")


def test_an_agent_is_served_as_the_page_says(shell: Shell) -> None:
    command = blocks(MONITORING, "sh")[-1].commands[0]
    address = f"127.0.0.1:{free_port()}"
    process = ServerProcess(
        shlex.split(f"{command} --listen {address}"),
        is_ready=lambda line: line.startswith("console"),
        environment=shell.environment,
    )
    try:
        process.wait_ready(PATIENCE_S)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(f"http://{address}/mcp", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.read().count(b'"inputSchema"') == 8, "the page says eight tools"
    finally:
        process.stop()


def test_a_console_of_several_clusters_lists_them(tmp_path: Path) -> None:
    first, last = (blocks("docs/CONSOLE.md", "sh")[number].commands[-1] for number in (0, -1))
    assert first.partition("#")[0].split() == last.replace("/etc/console/", "").split()
    shell, port = Shell(tmp_path), free_port()
    with (
        running(BarnabasBroker(tmp_path / "shop")) as shop,
        running(BarnabasBroker(tmp_path / "bank")) as bank,
    ):
        (shell.directory / "bank.properties").write_text(f"bootstrap.servers={bank.bootstrap}\n")
        line = last.replace("kafka.example:9092", shop.bootstrap).replace("/etc/console/", "")
        page = _shows_a_page(shell, f"{line} --listen 127.0.0.1:{port}", port)
    assert "/clusters/shop" in page
    assert "/clusters/bank" in page


@pytest.mark.parametrize("number", range(1, 4))
def test_a_console_is_there_after_each_command_of_its_page(number: int, tmp_path: Path) -> None:
    """`make run` is the first of the commands, and a broker with the option is the second."""
    shell = Shell(tmp_path)
    commands = blocks("docs/CONSOLE.md", "sh")[0].commands
    assert commands[0] == "make run"
    port, console = free_ports(3), free_port()
    line = commands[number]
    if line.startswith("barnabas start"):
        line += f" --data-dir data --listener PLAINTEXT://127.0.0.1:{port}"
        if "--brokers" in line:
            line += f" --console 127.0.0.1:{console}"
    line = line.replace("127.0.0.1:8080", f"127.0.0.1:{console}")
    if line.startswith("barnabas console"):
        with running(BarnabasBroker(tmp_path / "kafka")) as broker:
            line = line.replace("kafka.example:9092", broker.bootstrap) + f" --listen 127.0.0.1:{console}"
            _shows_a_page(shell, line, console)
    else:
        _shows_a_page(shell, line, console)


def test_a_console_with_schemas_or_pipelines_is_there(tmp_path: Path) -> None:
    """The service of the pipelines, the first line of its block, has tests of its own."""
    schemas, pipelines, _ = (each.commands[-1] for each in blocks("docs/CONSOLE.md", "sh")[1:])
    assert "--schema-registry https://registry.example:8081" in schemas
    assert "--pipelines http://127.0.0.1:8083" in pipelines
    shell = Shell(tmp_path)
    with running(BarnabasBroker(tmp_path / "kafka")) as broker:
        shell.environment["BARNABAS_BOOTSTRAP"] = broker.bootstrap
        for line in (schemas, pipelines):
            port = free_port()
            line = line.replace("kafka.example:9092", broker.bootstrap)  # noqa: PLW2901
            _shows_a_page(shell, f"{line} --listen 127.0.0.1:{port}", port)


def _shows_a_page(shell: Shell, line: str, port: int) -> str:
    process = ServerProcess(
        shlex.split(line),
        is_ready=lambda said: "console: http" in said or "console ready" in said,
        environment=shell.environment,
        working_directory=shell.directory,
    )
    try:
        eventually(
            lambda: "http://127.0.0.1" in process.output_text(), "a console", report=process.output_text
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as answer:
            page = str(answer.read(), "utf-8")
        assert "<title>" in page
        return page
    finally:
        process.stop()
