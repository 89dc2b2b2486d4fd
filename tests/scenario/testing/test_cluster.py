"""Clusters in the test's process: failover, cuts, moved leaders and time, with a real client."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from barnabas.testing.cluster import RunningCluster, run_cluster
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with run_cluster(3) as cluster:
        yield cluster


@pytest.fixture
def three(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """All brokers run, and nothing is cut."""
    yield cluster
    cluster.heal()
    for each in cluster.brokers:
        each.faults.clear()
        if each.is_running:
            each.resume()
        else:
            cluster.restart(each.broker_id)


def send(cluster: RunningCluster, topic: str, value: bytes) -> None:
    """A leader may change after its followers have the record, so the producer is idempotent."""
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 10,
        "log_level": 0,
    })  # fmt: skip
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def test_a_killed_leader_is_replaced_at_once_and_no_record_is_lost(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=3)
    three.wait_in_sync(topic)
    send(three, topic, b"before")
    dead = three.leader(topic)
    three.kill(dead)
    assert three.wait_for_leader(topic, is_not=dead) != dead
    send(three, topic, b"after")
    three.restart(dead)
    three.wait_in_sync(topic)
    assert three.values(topic) == [b"before", b"after"]


def test_a_stopped_broker_hands_its_partitions_over(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=2)
    leader = three.leader(topic)
    three.stop(leader)
    assert three.leader(topic) not in (leader, -1)
    for intervene in (three.pause, three.resume, three.expire_session):
        with pytest.raises(RuntimeError, match="does not run now"):
            intervene(leader)


def test_a_paused_broker_is_killed(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=3)
    three.wait_in_sync(topic)
    leader = three.leader(topic)
    three.pause(leader)
    three.kill(leader)
    assert three.wait_for_leader(topic, is_not=leader) != leader


def test_a_leader_moves_where_the_test_says(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=1)
    send(three, topic, b"one")
    for to in (1, 2, 3, 3):
        three.move_leader(topic, to=to)
        assert three.leader(topic) == to
        assert three.values(topic) == [b"one"]


def test_a_rule_moves_the_leader_and_the_producer_follows(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=3)
    three.wait_in_sync(topic)
    leader = three.leader(topic)
    rule = three.broker(leader).faults.add(api="Produce", topic=topic, action="move-leader", times=1)
    send(three, topic, b"one")
    assert rule.hits == 1
    assert three.leader(topic) != leader
    assert three.values(topic) == [b"one"]


def test_a_rule_ends_the_session_of_its_broker(three: RunningCluster) -> None:
    topic = three.create_topic(replication_factor=3)
    three.wait_in_sync(topic)
    leader = three.leader(topic)
    rule = three.broker(leader).faults.add(api="Produce", topic=topic, action="expire-session", times=1)
    send(three, topic, b"one")
    assert rule.hits == 1
    assert three.values(topic) == [b"one"]
    three.wait_in_sync(topic)
    eventually(
        lambda: any("session" in line and "has ended" in line for line in three.broker(leader).log_lines())
    )


def test_a_cut_shrinks_the_isr_and_its_end_restores_it() -> None:
    with run_cluster(3, time="virtual") as cluster:
        topic = cluster.create_topic(replication_factor=3)
        cluster.wait_in_sync(topic)
        leader = cluster.leader(topic)
        one, other = (each for each in (1, 2, 3) if each != leader)
        cluster.cut(leader, one)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        appended = cluster.broker(leader).faults.add(api="Produce", delay="1ms")
        producer.produce(topic, b"one")
        producer.poll(0)
        appended.wait_for_hits()
        for _ in range(3):  # the leader looks for lagging followers once in fifteen seconds
            cluster.time.advance("20s")
        cluster.wait_in_sync(topic, replicas=[leader, other])
        assert producer.flush(60) == 0
        cluster.heal(leader, one)
        cluster.wait_in_sync(topic)


def test_a_broker_that_is_cut_off_from_the_controller_is_not_asked(three: RunningCluster) -> None:
    """Its metadata are those from before the cut, as in Apache Kafka."""
    if three.controller() == 1:  # the broker that would be asked first
        three.restart(1)
    eventually(lambda: three.controller() in (2, 3))
    controller = three.controller()
    topic = three.create_topic(replication_factor=3)
    three.wait_in_sync(topic)
    three.cut(1, controller)
    for leader in (controller, 5 - controller, controller):
        three.move_leader(topic, to=leader)
        assert three.leader(topic) == leader
        assert three.wait_for_leader(topic) == leader


def test_a_paused_broker_is_missed_when_its_session_ends() -> None:
    with run_cluster(2, {"zookeeper.session.timeout.ms": "20000"}, time="virtual") as cluster:
        topic = cluster.create_topic(replication_factor=2)
        cluster.wait_in_sync(topic)
        leader = cluster.leader(topic)
        cluster.pause(leader)
        cluster.time.advance("10s")
        assert cluster.leader(topic) == leader
        cluster.time.advance("15s")
        assert cluster.wait_for_leader(topic, is_not=leader) != leader
        cluster.resume(leader)
        cluster.wait_in_sync(topic)


def test_a_snapshot_is_restored_while_clients_are_connected() -> None:
    with run_cluster(2) as cluster:
        topic = cluster.create_topic(replication_factor=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "retry.backoff.ms": 10, "log_level": 0})
        producer.produce(topic, b"kept")
        assert producer.flush(60) == 0
        snapshot = cluster.snapshot()
        producer.produce(topic, b"undone")
        assert producer.flush(60) == 0
        assert cluster.values(topic) == [b"kept", b"undone"]
        cluster.restore(snapshot)
        assert cluster.values(topic) == [b"kept"]
        send(cluster, topic, b"next")
        assert cluster.values(topic) == [b"kept", b"next"]
        with run_cluster(2, snapshot=snapshot) as other:
            assert other.values(topic) == [b"kept"]


def test_two_clusters_share_nothing_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with run_cluster(1):
        pass
    gc.collect()
    threads = threading.active_count()
    with run_cluster(2) as one, run_cluster(2) as two:
        topic = one.create_topic("orders")
        send(one, topic, b"one")
        two.create_topic("orders")
        assert two.values("orders") == []
        one.pause(1)
        one.kill(2)
    gc.collect()
    assert threading.active_count() == threads
    assert not [each.path for each in psutil.Process().open_files() if each.path.startswith(str(tmp_path))]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"brokers": 0}, "from 1 to 32"),
        ({"settings": {"broker.id": "7"}}, "broker.id is set by the cluster"),
        ({"time": "slow"}, "write 'real' or 'virtual'"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told), run_cluster(**wrong):  # type: ignore[arg-type]
        pass


def test_brokers_that_do_not_exist_are_named(three: RunningCluster) -> None:
    for ask in (three.kill, three.pause, three.restart, three.broker):
        with pytest.raises(ValueError, match="there is no broker 9"):
            ask(9)
    with pytest.raises(ValueError, match="from itself"):
        three.cut(1, 1)
    with pytest.raises(RuntimeError, match="snapshot of the cluster"):
        three.broker(1).snapshot()
    with pytest.raises(RuntimeError, match="virtual"):
        three.broker(1).time.advance("1s")
    with pytest.raises(FileNotFoundError):
        three.restore(Path("/nowhere"))
