"""The service as users run it: a process, its driver process with Spark, and the command line."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import TopicFactory
from tests.support.pipeline_service import PATIENCE_S, Service
from tests.support.spark import require_spark
from tests.support.table_reading import read_rows
from tests.support.topics import consume, produce
from tests.support.waiting import eventually


@pytest.fixture
def service(bootstrap: str, tmp_path: Path) -> Iterator[Service]:
    require_spark()
    running = Service(bootstrap, tmp_path)
    yield running
    assert running.process.stop() == 0, running.process.output_text()


def copying(source: str, out: str, directory: Path) -> Path:
    """A spec that copies a topic, and tries again soon."""
    spec = directory / "copy.yaml"
    spec.write_text(
        f"name: copy\nsource: {{type: topic, topics: {source}, schema: id BIGINT}}\n"
        f"sink: {{type: topic, topic: {out}}}\nrestart: {{backoff: 100 ms}}\n"
    )
    return spec


def test_a_pipeline_runs_pauses_survives_its_driver_and_begins_again(
    service: Service, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    spec = copying(source, out, tmp_path)
    assert service.cli("start", str(spec)) == "started copy: it begins at the earliest offsets\n"
    assert service.wait("copy", "RUNNING", records=10)["delivery"] == "exactly-once"
    assert "copy" in service.cli("list")
    service.cli("pause", "copy")
    service.wait("copy", "PAUSED")
    produce(bootstrap, source, [{"id": at} for at in range(10, 15)])
    service.cli("resume", "copy")
    service.wait("copy", "RUNNING", records=15)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(15))
    assert [source, "0", "15"] in [line.split() for line in service.cli("offsets", "copy").splitlines()]

    for driver in service.drivers():
        driver.send_signal(signal.SIGKILL)
    produce(bootstrap, source, [{"id": 15}])
    assert service.wait("copy", "RUNNING", records=16)["restarts"] >= 1
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(16))

    service.cli("stop", "copy")
    service.wait("copy", "STOPPED")
    service.cli("offsets", "copy", "--set", f"{source}:0=14")
    service.cli("start", "copy")
    service.wait("copy", "RUNNING", records=18)
    assert sorted(each.json["id"] for each in consume(bootstrap, out)) == [*range(14), 14, 14, 15, 15]
    service.cli("delete", "copy")
    assert "copy" not in service.cli("list")

    spec.write_text(spec.read_text() + "transforms:\n  - filter: uper(id) = '1'\n")
    assert "it begins at the earliest" in service.cli("start", str(spec))
    failed = service.wait("copy", "FAILED")
    assert (failed["restarts"], failed["failures"], failed["generation"]) == (0, 1, 2)
    assert failed["last_error"].startswith("transforms.0: [UNRESOLVED_ROUTINE]")


@pytest.mark.kill_matrix
def test_a_second_service_takes_over_and_the_first_stops_its_drivers(
    service: Service, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    spec = copying(source, out, tmp_path)
    service.cli("start", str(spec))
    service.wait("copy", "RUNNING", records=10)
    younger = Service(bootstrap, tmp_path)
    try:
        assert "has taken over" in service.wait("copy", "UNASSIGNED")["last_error"]
        end = time.monotonic() + PATIENCE_S
        while service.drivers():
            assert time.monotonic() < end, "the first service keeps its driver"
            time.sleep(0.2)
        produce(bootstrap, source, [{"id": at} for at in range(10, 15)])
        younger.wait("copy", "RUNNING", records=5)
        assert sorted(each.json["id"] for each in consume(bootstrap, out)) == list(range(15))
        assert service.status("copy")["state"] == "UNASSIGNED"
        younger.cli("delete", "copy")
    finally:
        assert younger.process.stop() == 0, younger.process.output_text()


def test_a_topic_is_kept_as_a_table_until_its_setting_goes(
    service: Service, bootstrap: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake" / "orders"
    setting = f"delta:{lake}?schema=id BIGINT&trigger=1 second"
    service.barnabas("topic", "create", "orders-as-table", "--partitions", "2", "--table", setting)
    produce(bootstrap, "orders-as-table", [{"id": at} for at in range(10)])
    eventually(lambda: "table-orders-as-table" in service.cli("list"))
    service.wait("table-orders-as-table", "RUNNING", records=10)
    assert sorted(row["id"] for row in read_rows("delta", lake)) == list(range(10))
    service.barnabas("topic", "delete", "orders-as-table", "--table", "remove")
    assert "table-orders-as-table" not in service.cli("list")
    assert not lake.exists()
