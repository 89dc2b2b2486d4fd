"""Values derived from several keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.config.definitions.shorthand import HOUR_MS, MINUTE_MS
from barnabas.config.listeners import parse_listeners, parse_protocol_map
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.errors import InvalidConfig

SECURED = "secure"
"""Folder of a data directory with the certificates and passwords of `start --secure`."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Values of all keys by name, and the values derived from several of them."""

    given: Mapping[str, str]
    values: Mapping[str, Any]
    listeners: tuple[ListenerEndpoint, ...]
    advertised_listeners: Mapping[str, ListenerEndpoint]
    inter_broker_listener: ListenerEndpoint
    control_plane_listener_name: str | None
    log_dirs: tuple[Path, ...]

    @classmethod
    def of(cls, given: Mapping[str, str], values: Mapping[str, Any]) -> Derived:
        protocols = parse_protocol_map(values["listener.security.protocol.map"])
        listeners = parse_listeners("listeners", values["listeners"], protocols)
        advertised = values["advertised.listeners"]
        plane = values["control.plane.listener.name"]
        return cls(
            given,
            values,
            listeners,
            {}
            if advertised is None
            else {
                each.listener_name: each
                for each in parse_listeners("advertised.listeners", advertised, protocols)
            },
            inter_broker_listener(given, values, listeners),
            plane and plane.upper(),
            log_directories(values),
        )

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def retention_ms(values: Mapping[str, Any]) -> int:
    """-1 keeps records forever."""
    if values["log.retention.ms"] is not None:
        wanted: int = values["log.retention.ms"]
    elif values["log.retention.minutes"] is not None:
        wanted = values["log.retention.minutes"] * MINUTE_MS
    else:
        wanted = values["log.retention.hours"] * HOUR_MS
    return max(wanted, -1)


def log_directories(values: Mapping[str, Any]) -> tuple[Path, ...]:
    """`log.dirs`, else `log.dir`, else a directory of the user that survives a reboot."""
    text = values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]
    if text is None:
        return (default_log_directory(),)
    directories = [Path(entry.strip()).expanduser() for entry in text.split(",") if entry.strip()]
    if not directories:
        raise InvalidConfig("log.dirs names no directory")
    for directory in directories:
        if directories.count(directory) > 1:
            raise InvalidConfig(f"log.dirs: {directory} is named twice")
    return tuple(directories)


def default_cluster_directory() -> Path:
    """Beside the directory of a single broker, never inside it: neither may take over the other's data."""
    single = default_log_directory()
    return single.with_name(f"{single.name}-cluster")


def default_log_directory() -> Path:
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "barnabas"


def inter_broker_listener(
    given: Mapping[str, str], values: Mapping[str, Any], listeners: tuple[ListenerEndpoint, ...]
) -> ListenerEndpoint:
    """The listener for connections between brokers."""
    name: str | None = values["inter.broker.listener.name"]
    if name is not None and "security.inter.broker.protocol" in given:
        raise InvalidConfig(
            "inter.broker.listener.name and security.inter.broker.protocol mean the same; set only one"
        )
    key = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
    wanted: str = values["security.inter.broker.protocol"] if name is None else name.upper()
    for listener in listeners:
        if listener.listener_name == wanted:
            return listener
    if name is None and key not in given and len(listeners) == 1:
        # A single listener under another name serves brokers too.
        return listeners[0]
    names = ", ".join(listener.listener_name for listener in listeners)
    raise InvalidConfig(
        f"{key} is {wanted}, but listeners has only {names}; set inter.broker.listener.name to one of them"
    )
