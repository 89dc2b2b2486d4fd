"""Who this broker is: its id and its cluster, from the configuration, the disk and the store.

A broker that has data must come back as the same broker of the same cluster: clients and other
brokers address its partitions by its id. So `meta.properties` in each log directory remembers
both, and any disagreement stops the start with a message that says between what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from barnabas.core.errors import InconsistentClusterId, InvalidConfig
from barnabas.storage.directory.directory_properties import MetaProperties

T = TypeVar("T")

GENERATE = -1


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the log directories agree on; None where none of them says."""

    broker_id: int | None
    cluster_id: str | None


def remembered(by_directory: Mapping[str, MetaProperties | None]) -> Remembered:
    known = {directory: found for directory, found in by_directory.items() if found is not None}
    broker_ids = {path: each.broker_id for path, each in known.items() if each.broker_id is not None}
    cluster_ids = {path: each.cluster_id for path, each in known.items() if each.cluster_id is not None}
    return Remembered(_agreed(broker_ids, "brokers"), _agreed(cluster_ids, "clusters"))


def _agreed(said: Mapping[str, T], noun: str) -> T | None:
    if len(set(said.values())) > 1:
        listed = ", ".join(f"{value} in {directory}" for directory, value in said.items())
        raise InvalidConfig(
            f"the log directories belong to different {noun}: {listed}. "
            "Give each broker its own directories, or remove the ones that are not this broker's"
        )
    return next(iter(said.values()), None)


def choose_broker_id(configured: int, remembered_id: int | None) -> int:
    """The id to use, or GENERATE when neither the configuration nor the disk has one."""
    if remembered_id is None:
        return configured
    if configured not in (GENERATE, remembered_id):
        raise InvalidConfig(
            f"broker.id is {configured}, but the log directories were written by broker {remembered_id}. "
            f"Start with --broker-id {remembered_id}, or with another --data-dir"
        )
    return remembered_id


def check_cluster_id(cluster_id: str, remembered_id: str | None) -> None:
    if remembered_id is not None and remembered_id != cluster_id:
        raise InconsistentClusterId(
            f"the coordination store is of cluster {cluster_id}, but the log directories were written in "
            f"cluster {remembered_id}. Point the broker at the store or the data directory that it had before"
        )
