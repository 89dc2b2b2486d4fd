"""`barnabas start --console`: the page beside a broker, fast because the broker answers from memory."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from tests.support.broker import BarnabasBroker, running
from tests.support.ports import free_port
from tests.support.schema_registry import run_registry
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


def test_the_environment_names_a_schema_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with run_registry() as registry:
        registry.register("points", '"int"')
        monkeypatch.setenv("BARNABAS_SCHEMA_REGISTRY", registry.url)
        with running(BarnabasBroker(tmp_path / "data", arguments=["--console", f"127.0.0.1:{port}"])):
            eventually(lambda: overview(port) is not None, "the console answers")
            found = httpx.get(f"http://127.0.0.1:{port}/api/schemas", timeout=PATIENCE_S, trust_env=False)
            assert found.json()["rows"] == [{"name": "points"}]


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
