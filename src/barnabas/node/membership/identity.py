"""Broker id and cluster id, from the configuration, the log directories and the store.

A broker with data must come back as the same broker of the same cluster: clients and other brokers address
its partitions by its id. So `meta.properties` in each log directory records both ids. A conflict stops the
start with a message that names both sides.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.stores.registration import generate_broker_id, get_or_create_cluster_id
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import InconsistentClusterId, InvalidConfig
from barnabas.core.files import Files
from barnabas.core.ids import BrokerId, Randomness
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from barnabas.storage.directory.directory_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.storage.directory.foreign_content import foreign_content
from barnabas.storage.directory.known_directories import remember_directories

T = TypeVar("T")

GENERATE = -1


class Identity(NamedTuple):
    broker_id: BrokerId
    cluster_id: str
    unusable: dict[str, OSError]
    """Log directories whose `meta.properties` cannot be read or written: offline from the start."""


def refuse_foreign_directories(files: Files, log_dirs: Iterable[Path]) -> None:
    """Stop the start before any write: the files of another broker must stay as they are."""
    for path in map(str, log_dirs):
        try:
            reason = foreign_content(files, path) if files.exists(path) else None
        except OSError:
            continue  # `settle_identity` finds that the directory is offline
        if reason is not None:
            raise InvalidConfig(f"{reason}; choose another --data-dir (log.dirs)")


def refuse_missing_store(files: Files, config: BrokerConfig, missing: Container[str]) -> None:
    """Stop the start before the embedded store opens: an empty store must not replace one that is
    elsewhere."""
    first, *others = map(str, config.log_dirs)
    if first in missing:
        raise InvalidConfig(
            f"the first log directory, {first}, holds the coordination store, and now it is empty: mount its"
            " disk, or restore it from a backup"
        )
    if files.exists(f"{first}/{COORDINATION_DIRECTORY}"):
        return
    for each in others:
        if files.exists(f"{each}/{COORDINATION_DIRECTORY}"):
            raise InvalidConfig(
                f"the coordination store is in {each}, and {first} has none: name {each} first in log.dirs"
            )


async def settle_identity(
    files: Files,
    config: BrokerConfig,
    znodes: Coordination,
    randomness: Randomness,
    missing: Mapping[str, OSError],
) -> Identity:
    """Settle both ids with the directories and the store, and record them where they are not recorded yet.

    The broker writes nothing to log directories that are `missing`."""
    mounted = [path for path in map(str, config.log_dirs) if path not in missing]
    found, unusable = _read_owners(files, mounted)
    unusable |= missing
    known = remembered(found)
    cluster_id = await get_or_create_cluster_id(znodes, randomness, known.cluster_id)
    check_cluster_id(cluster_id, known.cluster_id)
    broker_id = choose_broker_id(config.broker_id, known.broker_id)
    if broker_id == GENERATE:
        if not config.broker_id_generation_enable:
            raise InvalidConfig("broker.id is not set and broker.id.generation.enable is false")
        broker_id = await generate_broker_id(znodes, config.reserved_broker_max_id)
    properties = MetaProperties(broker_id=broker_id, cluster_id=cluster_id)
    for path, present in found.items():
        if present is None:
            try:
                write_meta_properties(files, path, properties)
            except OSError as error:
                unusable[path] = error
    usable = [path for path in found if path not in unusable]
    unusable |= remember_directories(files, usable, [str(path) for path in config.log_dirs])
    return Identity(BrokerId(broker_id), cluster_id, unusable)


def _read_owners(
    files: Files, log_dirs: Iterable[str]
) -> tuple[dict[str, MetaProperties | None], dict[str, OSError]]:
    """Content of each usable log directory's `meta.properties`, and the directories that are unusable. A new
    directory is made."""
    found: dict[str, MetaProperties | None] = {}
    unusable: dict[str, OSError] = {}
    for path in log_dirs:
        try:
            files.make_lasting_directory(path)
            found[path] = read_meta_properties(files, path)
        except OSError as error:
            unusable[path] = error
    return found, unusable


@dataclass(frozen=True, slots=True)
class Remembered:
    """Ids that the log directories agree on; None where no directory has one."""

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
            "Give each broker its own directories, or remove those of other brokers"
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
            f"the coordination store belongs to cluster {cluster_id}, but the log directories were written"
            f" in cluster {remembered_id}. Point the broker at its previous store or data directory"
        )
