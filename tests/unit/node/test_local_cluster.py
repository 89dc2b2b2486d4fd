"""From one set of properties to those of N brokers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import InvalidConfig
from barnabas.localcluster import shared_store
from barnabas.localcluster.local_cluster import ClusterFailed, LocalCluster, internal_topics
from barnabas.localcluster.shared_store import HomeInUse, SharedStore


def cluster(properties: dict[str, str], brokers: int = 3) -> LocalCluster:
    return LocalCluster({"log.dirs": "/data", "zookeeper.connect": "zk:2181", **properties}, brokers)


def test_ids_ports_and_directories_count_up() -> None:
    made = cluster({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/a,/b"}).properties
    assert list(made) == [1, 2, 3]
    assert [each["broker.id"] for each in made.values()] == ["1", "2", "3"]
    assert [each["listeners"] for each in made.values()] == [
        f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]
    assert made[2]["log.dirs"] == "/a/broker-2,/b/broker-2"


def test_advertised_listeners_count_up_with_the_listeners() -> None:
    made = cluster(
        {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://host:29092"}
    ).properties
    assert [each["advertised.listeners"] for each in made.values()] == [
        f"PLAINTEXT://host:{port}" for port in (29092, 29093, 29094)
    ]


def test_port_zero_stays_a_free_port() -> None:
    made = cluster({"listeners": "PLAINTEXT://127.0.0.1:0"}).properties
    assert {each["listeners"] for each in made.values()} == {"PLAINTEXT://127.0.0.1:0"}


def test_listeners_that_would_share_a_port_are_refused() -> None:
    listeners = "PLAINTEXT://:9092,INTERNAL://:9093"
    properties = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    }
    with pytest.raises(
        InvalidConfig, match="port 9093 would serve INTERNAL of broker 1 and PLAINTEXT of broker 2"
    ):
        cluster(properties)


def test_brokers_are_numbered_by_the_cluster() -> None:
    with pytest.raises(InvalidConfig, match=r"leave broker\.id out"):
        cluster({"broker.id": "7"})


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_have_three_replicas_where_there_are_three_brokers(
    brokers: int, replicas: str, in_sync: str
) -> None:
    assert internal_topics(brokers) == {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def test_what_was_given_wins_over_the_clusters_defaults() -> None:
    made = cluster({"offsets.topic.replication.factor": "2", "num.partitions": "6"}).properties
    assert made[1]["offsets.topic.replication.factor"] == "2"
    assert made[1]["num.partitions"] == "6"
    assert BrokerConfig.load(made[1]).values["default.replication.factor"] == 1


def test_without_a_zookeeper_the_brokers_share_a_store(tmp_path: Path) -> None:
    made = LocalCluster({"log.dirs": str(tmp_path)}, 2)
    assert made.server is None
    assert made.store is not None
    assert made.store.directory == tmp_path / "coordination"
    assert {each["coordination.socket"] for each in made.properties.values()} == {str(made.store.socket)}
    assert not any("zookeeper.connect" in each for each in made.properties.values())
    assert not any(BrokerConfig.load(each).owns_store for each in made.properties.values())


def test_a_home_is_free_when_the_last_broker_of_a_cluster_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a supervisor that was killed: its brokers hold the lock that they inherited."""
    monkeypatch.setattr(shared_store, "LOCK_WAIT_S", 0.1)
    first, second = SharedStore(tmp_path), SharedStore(tmp_path)
    with first.locked():
        assert first.lock is not None
        broker = subprocess.Popen(["sleep", "60"], pass_fds=(first.lock,))
        with pytest.raises(HomeInUse, match="another cluster is running"), second.locked():
            pass
    with pytest.raises(HomeInUse), second.locked():
        pass
    broker.kill()
    broker.wait()
    with second.locked():
        pass


def test_a_cluster_has_a_store_of_its_own() -> None:
    with pytest.raises(InvalidConfig, match=r"leave coordination\.socket out"):
        LocalCluster({"log.dirs": "/data", "coordination.socket": "/other"}, 2)


@pytest.mark.parametrize("named", ["local", "zk:2181"])
def test_a_home_with_a_shared_store_is_not_started_on_zookeeper(tmp_path: Path, named: str) -> None:
    (tmp_path / "coordination").mkdir()
    made = LocalCluster({"log.dirs": str(tmp_path), "zookeeper.connect": named}, 2)
    with pytest.raises(ClusterFailed, match="start it without --zookeeper"):
        made.run(print, print)
    assert [each.name for each in tmp_path.iterdir()] == ["coordination"]


@pytest.mark.parametrize("properties", [{}, {"zookeeper.connect": "local"}])
def test_a_home_with_a_zookeeper_keeps_it(properties: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "zookeeper" / "version-2").mkdir(parents=True)
    made = LocalCluster({"log.dirs": str(tmp_path), **properties}, 2)
    assert made.store is None
    assert made.keeps_zookeeper == (not properties)
    assert made.server is not None
    assert made.server.data_directory == tmp_path / "zookeeper"
    assert {each["zookeeper.connect"] for each in made.properties.values()} == {made.server.connect}
    assert made.server.host == "127.0.0.1"
    assert {each["zookeeper.session.timeout.ms"] for each in made.properties.values()} == {"6000"}


def test_a_zookeeper_that_was_named_is_used() -> None:
    made = cluster({"zookeeper.connect": "a:2181,b:2181/kafka"})
    assert made.server is None
    assert made.properties[3]["zookeeper.connect"] == "a:2181,b:2181/kafka"
    assert "zookeeper.session.timeout.ms" not in made.properties[3]


def test_a_cluster_and_a_single_broker_have_homes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (single,) = BrokerConfig.load({}).log_dirs
    assert LocalCluster({"zookeeper.connect": "zk:2181"}, 1).directory == tmp_path / "barnabas-cluster"
    assert single == tmp_path / "barnabas"


def test_a_cluster_does_not_move_in_with_a_single_broker(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(ClusterFailed, match="log directory of a single broker"):
        cluster({"log.dirs": str(tmp_path)}).run(print, print)
    assert [each.name for each in tmp_path.iterdir()] == ["meta.properties"]
