"""Small files that say whose a log directory is: `meta.properties` and the marker of a clean shutdown.

`meta.properties` comes in Kafka's version 0 (ZooKeeper mode: `broker.id`, `cluster.id`) and
version 1 (KRaft: `node.id`, `cluster.id`, `directory.id`). Both are read; version 0 is
written, because this broker lives on a ZooKeeper tree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from barnabas.config.properties import read_properties
from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import Uuid

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Which broker of which cluster wrote this directory."""

    version: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: Uuid | None = None

    def render(self) -> bytes:
        lines = [f"version={self.version}"]
        if self.broker_id is not None:
            lines.append(f"{'broker.id' if self.version == 0 else 'node.id'}={self.broker_id}")
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        if self.directory_id is not None:
            lines.append(f"directory.id={self.directory_id}")
        return ("#\n" + "\n".join(lines) + "\n").encode()


def read_meta_properties(files: Files, log_directory: str) -> MetaProperties | None:
    """The owner of the directory; None for a fresh one."""
    path = f"{log_directory}/{META_PROPERTIES}"
    if not files.exists(path):
        return None
    try:
        found = read_properties(files.read(path).decode("utf-8", "replace"))
        version = int(found.get("version", "0"))
        broker_id = found.get("broker.id", found.get("node.id"))
        directory_id = found.get("directory.id")
        return MetaProperties(
            version=version,
            broker_id=None if broker_id is None else int(broker_id),
            cluster_id=found.get("cluster.id"),
            directory_id=None if directory_id is None else Uuid.parse(directory_id),
        )
    except ValueError as error:
        raise KafkaStorageError(f"{path} cannot be understood: {error}") from None


def write_meta_properties(files: Files, log_directory: str, properties: MetaProperties) -> None:
    files.replace(f"{log_directory}/{META_PROPERTIES}", properties.render())


def write_clean_shutdown(files: Files, log_directory: str, broker_epoch: int) -> None:
    """Every log of the directory is flushed and closed: the next start may skip recovery."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace(f"{log_directory}/{CLEAN_SHUTDOWN}", content.encode())


def read_clean_shutdown(files: Files, log_directory: str) -> int | None:
    """The broker epoch at the clean shutdown (-1 if unknown); None when there was no such thing."""
    path = f"{log_directory}/{CLEAN_SHUTDOWN}"
    if not files.exists(path):
        return None
    try:
        return int(json.loads(files.read(path))["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1  # the marker of brokers that wrote no epoch is an empty file


def remove_clean_shutdown(files: Files, log_directory: str) -> None:
    files.unlink(f"{log_directory}/{CLEAN_SHUTDOWN}")
    files.sync_directory(log_directory)
