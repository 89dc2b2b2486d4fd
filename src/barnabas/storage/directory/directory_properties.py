"""Ownership files of a log directory: `meta.properties`, the clean-shutdown marker and the open marker.

`meta.properties` has two versions in Kafka: 0 (ZooKeeper mode: `broker.id`, `cluster.id`) and 1 (KRaft:
`node.id`, `cluster.id`, `directory.id`). The broker reads both. It writes version 0, because it keeps its
metadata in a ZooKeeper tree.

`.barnabas_open` exists from a start to the next clean shutdown. After a crash it proves that this broker
closed the segments, so their indexes hold where they ended. Segments of Apache Kafka have no such entry.
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
OPEN = ".barnabas_open"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Broker and cluster that own a log directory."""

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
        content = "#\n" + "\n".join(lines) + "\n"
        if read_properties(content).get("cluster.id") != self.cluster_id:
            raise KafkaStorageError(f"meta.properties cannot hold the cluster id {self.cluster_id!r}")
        return content.encode()


def read_meta_properties(files: Files, log_directory: str) -> MetaProperties | None:
    """Read the owner of the directory; None for a fresh one."""
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
        raise KafkaStorageError(f"{path} is not valid: {error}") from None


def write_meta_properties(files: Files, log_directory: str, properties: MetaProperties) -> None:
    files.replace(f"{log_directory}/{META_PROPERTIES}", properties.render())


def write_clean_shutdown(files: Files, log_directory: str, broker_epoch: int) -> None:
    """Write the marker that lets the next start skip recovery. Every log is flushed and closed."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace(f"{log_directory}/{CLEAN_SHUTDOWN}", content.encode())
    files.unlink(f"{log_directory}/{OPEN}")


def read_clean_shutdown(files: Files, log_directory: str) -> int | None:
    """Read the broker epoch of the clean shutdown (-1 if unknown); None after a crash."""
    path = f"{log_directory}/{CLEAN_SHUTDOWN}"
    if not files.exists(path):
        return None
    try:
        return int(json.loads(files.read(path))["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1  # older brokers write no epoch: their marker is an empty file


def remove_clean_shutdown(files: Files, log_directory: str) -> None:
    files.unlink(f"{log_directory}/{CLEAN_SHUTDOWN}")
    files.sync_directory(log_directory)


def mark_open(files: Files, log_directory: str) -> bool:
    """Mark the directory as open, before any other write to it. True if it was marked already."""
    path = f"{log_directory}/{OPEN}"
    is_marked = files.exists(path)
    if not is_marked:
        files.replace(path, b"")
    return is_marked
