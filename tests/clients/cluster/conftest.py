"""Three brokers for the whole session, ours or Apache Kafka's (`--broker kafka` checks the tests)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.peers.kafka import require_kafka
from tests.support.clusters import AnyCluster, any_cluster

SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "auto.leader.rebalance.enable": "false",
}
SESSION_TIMEOUT_MS = 4_000
ClusterTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def one_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyCluster]:
    require_kafka()
    name = request.config.getoption("--broker")
    directory = tmp_path_factory.mktemp("three")
    with any_cluster(
        name,
        directory,
        SETTINGS,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        each=lambda node: {"broker.rack": f"rack-{node}"},
    ) as cluster:
        yield cluster


@pytest.fixture
def three(one_cluster: AnyCluster) -> Iterator[AnyCluster]:
    """All three brokers running, after any faults of the previous test."""
    yield one_cluster
    for broker in one_cluster.brokers:
        if not broker.is_running:
            broker.start()
    one_cluster.wait_for(lambda: len(one_cluster.view([]).brokers) == 3, what="all brokers are back")


@pytest.fixture
def bootstrap(three: AnyCluster) -> str:
    return three.bootstrap


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, three: AnyCluster) -> ClusterTopic:
    """`new_topic({0: [1, 2, 3]}, **configs)` makes a topic with these replicas, all in sync."""
    stem = "-".join(re.findall(r"[A-Za-z0-9]+", request.node.name))[:180]

    def make(assignment: Mapping[int, Sequence[int]] | None = None, **configs: object) -> str:
        name = f"{stem}-{next(_numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        three.create_topic(name, assignment=assignment or {0: [1, 2, 3]}, configs=named)
        return name

    return make
