"""Metrics page over HTTP after real requests."""

from __future__ import annotations

import re
import shutil
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas import __version__
from barnabas.core.compiled import CODE
from tests.support.broker import BarnabasBroker, running
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S
from tests.support.wire import (
    FETCH,
    PRODUCE,
    PRODUCE_VERSION,
    WireConnection,
    array,
    batch,
    fetch_body,
    message_set_entry,
    nullable_bytes,
    produce_body,
    string,
)

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class Endpoint:
    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self._root + path, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def samples(self) -> dict[tuple[str, str], float]:
        """By name and by the rendered labels."""
        found = {}
        for line in self.get("/metrics").splitlines():
            if not line.startswith("#"):
                match = SAMPLE.match(line)
                assert match is not None, line
                found[match[1], match[2] or ""] = float(match[3])
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BarnabasBroker, Endpoint]]:
    port = free_port()
    directory: Path = tmp_path_factory.mktemp("metrics")
    with running(BarnabasBroker(directory, arguments=["--metrics", f"127.0.0.1:{port}"])) as broker:
        yield broker, Endpoint(port)  # type: ignore[misc]


@pytest.fixture
def connection(served: tuple[BarnabasBroker, Endpoint]) -> Iterator[WireConnection]:
    with WireConnection(served[0].host, served[0].port) as opened:
        yield opened


@pytest.fixture
def endpoint(served: tuple[BarnabasBroker, Endpoint]) -> Endpoint:
    return served[1]


def test_every_api_has_its_rate_and_its_times(endpoint: Endpoint, connection: WireConnection) -> None:
    assert connection.create_topic("times") == 0
    for _ in range(3):
        connection.produce("times", batch())
    connection.ask(FETCH, 4, fetch_body("times", 0))
    connection.ask(FETCH, 4, fetch_body("times", 3, max_wait_ms=20))
    seen = endpoint.samples()
    assert seen["kafka_requests_total", 'api="Produce",version="7"'] >= 3
    assert seen["kafka_requests_total", 'api="CreateTopics",version="2"'] >= 1
    assert seen["barnabas_build_info", f'code="{CODE}",version="{__version__}"'] == 1
    for name in ("queue", "local", "total"):
        assert seen[f"kafka_request_{name}_time_ms_count", 'api="Produce"'] >= 3
        assert seen[f"kafka_request_{name}_time_ms_count", 'api="FetchConsumer"'] == 2
    assert seen["kafka_request_remote_time_ms_count", 'api="FetchConsumer"'] == 1, (
        "one of the two had to wait"
    )
    assert seen["kafka_request_remote_time_ms_sum", 'api="FetchConsumer"'] >= 19
    assert seen["kafka_request_total_time_ms_sum", 'api="FetchConsumer"'] >= 19


def test_requests_without_an_answer_have_times_too(endpoint: Endpoint, connection: WireConnection) -> None:
    assert connection.create_topic("silent") == 0
    before = endpoint.samples()
    for _ in range(5):
        connection.send(PRODUCE, PRODUCE_VERSION, produce_body("silent", batch(), acks=0))
    assert connection.latest_offset("silent") == 5
    after = endpoint.samples()
    for name in ("queue", "local", "total"):
        key = f"kafka_request_{name}_time_ms_count", 'api="Produce"'
        assert after[key] - before.get(key, 0) == 5, name


def test_every_topic_has_its_traffic_and_its_failures(endpoint: Endpoint, connection: WireConnection) -> None:
    assert connection.create_topic("traffic") == 0
    first, second = batch([b"a", b"b", b"c"]), batch([b"d"])
    connection.produce("traffic", first)
    connection.produce("traffic", second)
    connection.produce("traffic", batch(crc=1))
    connection.ask(FETCH, 4, fetch_body("traffic", 0))
    connection.ask(FETCH, 4, fetch_body("traffic", 99))
    seen = endpoint.samples()
    assert seen["kafka_bytes_in_total", 'topic="traffic"'] == len(first) + len(second)
    assert seen["kafka_bytes_out_total", 'topic="traffic"'] == len(first) + len(second)
    third = message_set_entry(b"e")
    partitions = array([struct.pack(">i", 0) + nullable_bytes(third)])
    connection.ask(PRODUCE, 2, struct.pack(">hi", 1, 1_000) + array([string("traffic") + partitions]))
    in_old_versions = array([struct.pack(">iqi", 0, 3, 1 << 20)])
    asked = struct.pack(">iii", -1, 0, 1) + array([string("traffic") + in_old_versions])
    connection.ask(FETCH, 2, asked)
    seen = endpoint.samples()
    of_topic = {name: value for (name, labels), value in seen.items() if labels == 'topic="traffic"'}
    assert of_topic.pop("kafka_bytes_in_total") > len(first) + len(second)
    assert of_topic.pop("kafka_bytes_out_total") > len(first) + len(second)
    assert of_topic == {
        "kafka_messages_in_total": 5,
        "kafka_total_produce_requests_total": 4,
        "kafka_total_fetch_requests_total": 3,
        "kafka_bytes_rejected_total": 0,
        "kafka_failed_produce_requests_total": 1,
        "kafka_failed_fetch_requests_total": 1,
        "kafka_produce_message_conversions_total": 1,
        "kafka_fetch_message_conversions_total": 1,
    }


def test_the_state_and_the_partitions_are_visible(endpoint: Endpoint, connection: WireConnection) -> None:
    before = endpoint.samples()
    assert connection.create_topic("visible", partitions=3) == 0
    seen = endpoint.samples()
    assert seen["kafka_broker_state", ""] == 3
    assert seen["kafka_partitions", ""] - before["kafka_partitions", ""] == 3
    assert seen["barnabas_network_connections", ""] >= 1
    assert endpoint.get("/health") == "RUNNING\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        endpoint.get("/nothing")


def test_a_log_has_the_size_segments_and_offsets_of_its_files(
    served: tuple[BarnabasBroker, Endpoint], endpoint: Endpoint, connection: WireConnection
) -> None:
    assert connection.create_topic("logs", configs={"segment.bytes": "300"}) == 0
    batches = [batch([b"x" * 100]) for _ in range(7)]
    for each in batches:
        connection.produce("logs", each)
    seen = endpoint.samples()
    files = list(served[0].data_directory.rglob("logs-0/*.log"))
    labels = 'partition="0",topic="logs"'
    assert seen["kafka_log_size", labels] == sum(map(len, batches)) == sum(f.stat().st_size for f in files)
    assert seen["kafka_log_num_log_segments", labels] == len(files) > 1
    assert seen["kafka_log_log_start_offset", labels] == 0
    assert seen["kafka_log_log_end_offset", labels] == 7


def test_records_that_are_too_large_count_as_rejected_bytes(
    endpoint: Endpoint, connection: WireConnection
) -> None:
    assert connection.create_topic("small", configs={"max.message.bytes": "200"}) == 0
    large = batch([b"x" * 1_000])
    connection.produce("small", large)
    seen = endpoint.samples()
    assert seen["kafka_bytes_rejected_total", 'topic="small"'] == len(large)
    assert seen["kafka_total_produce_requests_total", 'topic="small"'] == 1
    assert seen["kafka_bytes_in_total", 'topic="small"'] == 0


def test_fetches_of_followers_are_counted_apart(endpoint: Endpoint, connection: WireConnection) -> None:
    assert connection.create_topic("apart") == 0
    connection.produce("apart", batch())
    before = endpoint.samples()
    as_broker_1 = struct.pack(">i", 1)
    for _ in range(2):
        connection.ask(FETCH, 4, as_broker_1 + fetch_body("apart", 0)[4:])
    connection.ask(FETCH, 4, fetch_body("apart", 0))
    after = endpoint.samples()

    def grown(name: str, labels: str) -> float:
        return after[name, labels] - before.get((name, labels), 0)

    assert grown("kafka_requests_total", 'api="FetchFollower",version="4"') == 2
    assert grown("kafka_requests_total", 'api="FetchConsumer",version="4"') == 1
    assert grown("kafka_request_total_time_ms_count", 'api="FetchFollower"') == 2


def test_the_process_is_visible(
    served: tuple[BarnabasBroker, Endpoint], endpoint: Endpoint, connection: WireConnection
) -> None:
    process = psutil.Process(served[0].pid)
    descriptors = process.num_fds()
    seen = endpoint.samples()
    assert abs(seen["process_open_fds", ""] - descriptors) <= 3, "the page has a connection of its own"
    assert seen["process_resident_memory_bytes", ""] == pytest.approx(process.memory_info().rss, rel=0.1)
    times = process.cpu_times()
    assert 0 < seen["process_cpu_seconds_total", ""] <= times.user + times.system + 0.02
    assert 1 <= seen["process_threads", ""] <= process.num_threads() + 1
    assert seen["process_max_fds", ""] == process.rlimit(psutil.RLIMIT_NOFILE)[0]
    assert seen["python_gc_collections_total", 'generation="0"'] >= 0
    assert 0 <= seen["barnabas_loop_busy_share", ""] <= 1
    assert seen["barnabas_loop_lag_ms", ""] >= 0


def test_the_stores_are_visible(
    served: tuple[BarnabasBroker, Endpoint], endpoint: Endpoint, connection: WireConnection
) -> None:
    before = endpoint.samples()
    assert connection.create_topic("stored") == 0
    seen = endpoint.samples()
    latency = "kafka_zookeeper_request_latency_ms_count", ""
    assert seen[latency] > before[latency]
    assert seen["kafka_zookeeper_session_state", 'state="connected"'] == 1
    directory = served[0].data_directory
    assert seen["kafka_log_directory_offline", f'log_directory="{directory}"'] == 0
    free_bytes = shutil.disk_usage(directory).free
    assert seen["barnabas_log_directory_free_bytes", f'log_directory="{directory}"'] == pytest.approx(
        free_bytes, rel=0.1
    )


def test_the_page_has_nothing_that_the_list_of_metrics_lacks(
    endpoint: Endpoint, connection: WireConnection
) -> None:
    assert connection.create_topic("listed") == 0
    connection.produce("listed", batch())
    text = endpoint.get("/metrics")
    listed = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
    known = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in row.findall(listed)}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        assert known[name][0] == kind, name
    for name, labels in endpoint.samples():
        family = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(re.findall(r'(\w+)="', labels)) - {"le"} == known[family][1], name
