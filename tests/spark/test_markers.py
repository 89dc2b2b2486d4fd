"""The topic in which all pipelines keep the names of their last batches, on a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.support.fixtures import TopicFactory
from tests.support.spark import require_spark

if TYPE_CHECKING:
    from barnabas.client.core.transaction_steps import Transaction
    from pyspark_barnabas.shared.cluster import Cluster


def kept(cluster: Cluster, topic: str, group: str, text: str) -> Transaction:
    """An open transaction that has a marker in it."""
    from barnabas.client.core import transaction_steps as transactions
    from pyspark_barnabas.writers.attempts import markers

    transaction = cluster.run(transactions.begin(cluster.state, group, 600_000))
    markers.keep(cluster, transaction, topic, group, text)
    return transaction


@pytest.mark.timeout(120)
def test_a_driver_that_died_in_its_commit_holds_no_other_pipeline_up(
    bootstrap: str, new_topic: TopicFactory
) -> None:
    require_spark()
    from barnabas.client.core import transaction_steps as transactions
    from barnabas.core.addressing.endpoints import Endpoint
    from pyspark_barnabas.shared.cluster import Cluster
    from pyspark_barnabas.shared.cluster_config import ClusterConfig
    from pyspark_barnabas.writers.attempts.markers import last_kept

    topic = new_topic(cleanup_policy="compact")
    mine, dead = (f"{name}-{uuid.uuid4()}" for name in ("mine", "dead"))
    with Cluster(ClusterConfig((Endpoint.parse(bootstrap),))) as cluster:
        end: Callable[..., None] = lambda txn, commit: cluster.run(  # noqa: E731
            transactions.end(cluster.state, txn, commit=commit)
        )
        end(kept(cluster, topic, mine, "1"), commit=True)
        left_open = kept(cluster, topic, dead, "1")
        assert last_kept(cluster, topic, mine) == "1"
        end(kept(cluster, topic, mine, "2"), commit=True)
        end(kept(cluster, topic, mine, "3"), commit=False)
        assert last_kept(cluster, topic, mine) == "2"
        end(left_open, commit=False)
        assert (last_kept(cluster, topic, mine), last_kept(cluster, topic, dead)) == ("2", "")
