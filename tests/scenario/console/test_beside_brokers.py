"""`barnabas start --console`: the page beside a broker, fast because the broker answers from memory."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import psutil

import barnabas
from barnabas.cli.commands.cluster.start import _console_address
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.core.addressing.endpoints import Endpoint
from tests.support.broker import BarnabasBroker, running
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S, eventually


def overview(port: int) -> httpx.Response | None:
    try:
        found = httpx.get(f"http://127.0.0.1:{port}/api/overview", timeout=PATIENCE_S, trust_env=False)
    except httpx.TransportError:
        return None
    return found if found.status_code == 200 else None


def test_the_page_starts_after_the_ready_line_and_ends_with_the_broker(tmp_path: Path) -> None:
    port = free_port()
    broker = BarnabasBroker(tmp_path / "data", arguments=["--console", f"127.0.0.1:{port}"])
    with running(broker):
        eventually(lambda: overview(port) is not None, "the console answers")
        (child,) = psutil.Process(broker.pid).children()
        assert child.nice() > psutil.Process(broker.pid).nice(), "the broker goes first"
        found = overview(port)
        assert found is not None
        assert found.json()["store"] == "embedded"
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 1, configs={"segment.bytes": "2000"})])
        with Producer(broker.bootstrap) as producer:
            for number in range(50):
                producer.send("orders", bytes(100), key=b"%d" % number)
                producer.flush()
        url = f"http://127.0.0.1:{port}"
        picture = httpx.get(
            f"{url}/api/topics/orders/partitions/0", timeout=PATIENCE_S, trust_env=False
        ).json()
        assert len(picture["segments"]) > 1
        assert picture["segments"][-1]["is_active"]
        page = httpx.get(f"{url}/topics/orders/partitions/0", timeout=PATIENCE_S, trust_env=False).text
        assert page.count('class="segment"') == len(picture["segments"]) - 1
        text = broker.output_text()
        assert text.index("barnabas ready") < text.index(f"console: http://127.0.0.1:{port}")
    assert overview(port) is None


def test_three_brokers_open_on_their_console(tmp_path: Path) -> None:
    """The page is on by default with `--brokers`; a test chooses its port."""
    assert _console_address(None, is_cluster=True) == Endpoint("127.0.0.1", 8080)
    assert _console_address(None, is_cluster=False) is None
    assert _console_address("off", is_cluster=True) is None
    port = free_port()
    command = [sys.executable, "-m", "barnabas", "start", "--brokers", "3", "--data-dir", str(tmp_path)]
    command += ["--listener", "PLAINTEXT://127.0.0.1:0", "--console", f"127.0.0.1:{port}"]
    process = ServerProcess(
        command,
        is_ready=lambda line: line.startswith("barnabas ready"),
        environment={"PYTHONPATH": str(Path(barnabas.__file__).parents[1])},
    )
    try:
        ready = process.wait_ready(PATIENCE_S)
        (bootstrap, *_) = re.findall(r"PLAINTEXT://([\d.]+:\d+)", ready)
        eventually(lambda: overview(port) is not None, "the console answers")
        with Admin(bootstrap) as admin:
            brokers = {each.broker_id for each in admin.describe_cluster().brokers}
            admin.create_topics([NewTopic("orders", 3, 3)])
        assert brokers == {1, 2, 3}
        found = overview(port)
        assert found is not None
        assert {each["broker_id"] for each in found.json()["brokers"]} == brokers
        assert found.json()["latencies"], "the brokers answer from memory"
        assert f"console: http://127.0.0.1:{port}" in process.output_text()
    finally:
        assert process.stop() == 0
    assert overview(port) is None


def test_a_taken_address_is_one_line_and_the_broker_goes_on(tmp_path: Path) -> None:
    port = free_port()
    taken = BarnabasBroker(tmp_path / "data", port=port, arguments=["--console", f"127.0.0.1:{port}"])
    with running(taken):
        eventually(lambda: "another --console" in taken.output_text(), "the console says why not")
        lines = [line for line in taken.output_text().splitlines() if "console" in line]
        assert len(lines) == 1
        assert f"cannot listen on 127.0.0.1:{port}" in lines[0]
        with Admin(taken.bootstrap) as admin:
            assert admin.list_topics() == []
