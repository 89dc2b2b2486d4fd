"""A broker inside another project's test: started in a moment, removed without a trace."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from barnabas.core.errors import InvalidConfig
from barnabas.testing.broker import run_broker
from tests.support.wire import WireConnection, batch
from tests.support.workload import read_all

REPOSITORY = Path(__file__).resolve().parents[3]


def address(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.split(":")
    return host, int(port)


def test_a_client_talks_to_it_at_once() -> None:
    with run_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("made-when-first-used", b"hello")
        assert producer.flush(60) == 0
        assert [each.value for each in read_all(broker.bootstrap, "made-when-first-used")] == [b"hello"]


def test_it_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with run_broker():
        assert list(tmp_path.iterdir()) != []
    gc.collect()
    threads, descriptors = threading.active_count(), psutil.Process().num_fds()
    for _ in range(3):
        with run_broker() as broker, WireConnection(*address(broker.bootstrap)) as connection:
            assert connection.create_topic("topic") == 0
            assert connection.produce("topic", batch()) == (0, 0)
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads
    assert psutil.Process().num_fds() <= descriptors


def test_several_run_side_by_side() -> None:
    with run_broker() as one, run_broker({"broker.id": "7"}) as two:
        assert one.bootstrap != two.bootstrap
        assert two.broker_id == 7
        with WireConnection(*address(one.bootstrap)) as connection:
            assert connection.create_topic("topic") == 0
        with WireConnection(*address(two.bootstrap)) as connection:
            assert connection.create_topic("topic") == 0, "they share nothing"


def test_settings_and_data_may_be_given(tmp_path: Path) -> None:
    for number in range(2):
        with run_broker({"log.segment.bytes": "2000"}, data_dir=tmp_path) as broker:
            with WireConnection(*address(broker.bootstrap)) as connection:
                connection.create_topic("topic")
                for _ in range(30):
                    error, _ = connection.produce("topic", batch([bytes(100)]))
                    assert error == 0
                assert connection.latest_offset("topic") == 30 * (number + 1)
    assert len(list((tmp_path / "topic-0").glob("*.log"))) > 1


def test_a_start_that_fails_is_raised_in_the_test(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig), run_broker({"log.segment.bytes": "few"}):
        pass
    with run_broker(data_dir=tmp_path) as broker, pytest.raises(OSError, match="cannot listen"):
        with run_broker({"listeners": f"PLAINTEXT://{broker.bootstrap}"}):
            pass


TESTS = """
import sys

def test_nothing_heavy_is_loaded_before_it_is_asked_for():
    assert "barnabas.testing.plugin" in sys.modules
    assert "barnabas.node.broker" not in sys.modules

def test_it_is_the_same_in_every_test(barnabas_broker, barnabas_bootstrap):
    assert barnabas_broker.bootstrap == barnabas_bootstrap

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

"""


def example_of_the_readme() -> str:
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return page.partition("## Inside a pytest")[2].partition("```python\n")[2].partition("```")[0]


def run_their_tests(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(REPOSITORY / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "barnabas.testing.plugin", "-W", "error", *options, "."],
        cwd=directory, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_pytest_plugin_offers_a_broker_as_the_readme_shows(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS + example_of_the_readme())
    done = run_their_tests(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


FAULTY_TESTS = """
from confluent_kafka import Producer

def test_one(barnabas_broker, barnabas_topic, barnabas_faults):
    barnabas_faults.add(api="Produce", topic=barnabas_topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap, "retry.backoff.ms": 10})
    producer.produce(barnabas_topic, b"one")
    assert producer.flush(30) == 0
    assert [each.value for each in barnabas_broker.records(barnabas_topic)] == [b"one"]
    barnabas_broker.disk.fail("EIO", under="later")

def test_two(barnabas_broker, barnabas_topic):
    delivered = []
    assert barnabas_broker.records(barnabas_topic) == []
    assert len(barnabas_broker.faults) == 0
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap, "message.timeout.ms": 20_000})
    producer.produce("later", b"one", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None], "the disk is whole again"
    assert False, "on purpose"
"""


def test_rules_end_with_their_test_and_a_failed_test_shows_the_last_requests(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(FAULTY_TESTS)
    done = run_their_tests(tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: on purpose" in done.stdout, done.stdout
    assert "last requests to barnabas_broker" in done.stdout
    assert "of rdkafka: ProduceRequest(" in done.stdout
    assert "log of barnabas_broker" in done.stdout
    assert "1 new partitions are brought online" in done.stdout


BROKERS_OF_THEIR_OWN = """
import unittest

import pytest
from confluent_kafka import Producer

from barnabas.testing.broker import run_broker


def publish(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0

class OrdersTest(unittest.TestCase):
    def test_within(self):
        publish(self.enterContext(run_broker()))
        self.fail("on purpose")

def test_quiet_before(barnabas_broker):
    pass

def test_within():
    with run_broker() as broker:
        broker.faults.add(api="Heartbeat", drop="before")
        assert False, "on purpose"

@pytest.fixture
def published(barnabas_broker):
    publish(barnabas_broker)
    raise ValueError("on purpose")

def test_setup(published):
    pass
"""


def test_a_failed_test_shows_brokers_that_no_fixture_gave_it(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(BROKERS_OF_THEIR_OWN)
    done = run_their_tests(tmp_path)
    assert "2 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    at_setup, of_class, of_function = _reports(done.stdout)
    assert "last requests to barnabas_broker" in at_setup
    assert "ProduceRequest(" in at_setup
    assert "last requests to the broker on 127.0.0.1" in of_class
    assert "ProduceRequest(" in of_class
    assert "log of the broker on 127.0.0.1" in of_function
    assert "fault(api=Heartbeat, drop=before): 0 hits of 0 matches" in of_function
    assert "barnabas_broker" not in of_class + of_function


def _reports(output: str) -> list[str]:
    """Reports of pytest on single tests, without the summary."""
    return re.split(r"\n_{3,} .* _{3,}\n", output.partition("short test summary")[0])[1:]


CLUSTER_TESTS = """
def test_one(barnabas_cluster):
    topic = barnabas_cluster.create_topic()
    barnabas_cluster.move_leader(topic, to=2)
    assert barnabas_cluster.leader(topic) == 2

def test_two(barnabas_cluster, barnabas_broker):
    assert barnabas_broker.bootstrap not in barnabas_cluster.bootstrap
    assert False, "on purpose"

seen = []

def test_three(barnabas_broker):
    seen.append(barnabas_broker.bootstrap)

def test_four(barnabas_broker):
    assert barnabas_broker.bootstrap not in seen
"""


def test_a_cluster_and_a_scope_of_ones_own_beside_other_workers(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(CLUSTER_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nbarnabas_scope = function\n")
    done = run_their_tests(tmp_path, "-p", "xdist", "-n", "2", "--dist", "loadfile")
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    for broker in (1, 2, 3):
        assert f"log of barnabas_cluster, broker {broker}" in done.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\nbarnabas_scope = forever\n")
    wrong = run_their_tests(tmp_path)
    assert "barnabas_scope = forever: write one of session" in wrong.stdout + wrong.stderr


UNITTEST_TESTS = """
import unittest
from barnabas.testing.broker import run_broker
from barnabas.testing.cluster import run_cluster

class OrdersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(run_broker())

    def test_a_topic(self):
        self.assertEqual(self.broker.values(self.broker.create_topic()), [])

    def test_a_cluster(self):
        cluster = self.enterContext(run_cluster(2))
        self.assertEqual(len(cluster), 2)
"""


def test_unittest_uses_the_context_managers(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(UNITTEST_TESTS)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unittest", "-v", "test_theirs"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr


def test_the_plugin_is_registered_for_pytest() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    plugin = import_module(project["entry-points"]["pytest11"]["barnabas"])
    assert hasattr(plugin, "barnabas_bootstrap")


@pytest.mark.parametrize(("settings", "delay"), [({}, "0"), ({"group.initial.rebalance.delay.ms": "7"}, "7")])
def test_a_group_does_not_wait_for_others(settings: dict[str, str], delay: str) -> None:
    """Production's pause before a group's first rebalance would be paid by every test that consumes."""
    with run_broker(settings) as broker:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.broker_id))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found = admin.describe_configs([resource])[resource].result(60)
        assert found["group.initial.rebalance.delay.ms"].value == delay


def test_a_broker_without_a_plain_listener_says_so_when_it_is_asked() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with (
        run_broker(settings) as broker,
        pytest.raises(RuntimeError, match="has only SASL_PLAINTEXT: give it"),
    ):
        broker.create_topic()
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:0,{settings['listeners']}"
    with run_broker(settings) as broker:
        assert broker.values(broker.create_topic()) == []
