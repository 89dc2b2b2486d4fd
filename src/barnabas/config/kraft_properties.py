"""Properties of a KRaft server, such as Apache Kafka 4's own `server.properties`, read for this broker.

`node.id` is the broker's id, and a server whose `process.roles` has `broker` is a broker. It needs no
controllers of KRaft: their listeners are not served, and the settings of their quorum have no effect.
Settings that ask for more stay in the properties, and are rejected with all other problems:
- `process.roles` without `broker`;
- another `node.id` than `broker.id`;
- a quorum of several controllers without `zookeeper.connect`: each broker would be a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ROLES = frozenset({"broker", "controller"})
_QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
_IGNORED = frozenset(
    {
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "controller.listener.names",
        "early.start.listeners",
        "initial.broker.registration.timeout.ms",
        "metadata.log.dir",
        "sasl.mechanism.controller.protocol",
        "server.max.startup.time.ms",
    }
)
_IGNORED_PREFIXES = ("controller.quorum.", "metadata.log.", "metadata.max.", "share.coordinator.")
"""`share.coordinator.` is in Kafka's own file. It sizes a topic of share groups, and enables nothing."""


class Translation(NamedTuple):
    properties: dict[str, str]
    ignored: list[str]
    """Keys without effect, and listeners that are not served."""
    node_id: str | None
    """The `node.id` that has become `broker.id`."""

    @property
    def warning(self) -> str | None:
        """One line for the operator; None if no setting was of KRaft."""
        parts = []
        if self.node_id is not None:
            parts.append(f"node.id {self.node_id} is used as broker.id")
        if self.ignored:
            parts.append(f"without effect in this broker: {', '.join(self.ignored)}")
        return f"settings of KRaft: {'; '.join(parts)}" if parts else None


def translate(given: Mapping[str, str]) -> Translation:
    """Translate KRaft's properties as far as this broker can; those it rejects stay."""
    properties, ignored = dict(given), []
    node_id = _take_node_id(properties)
    if _is_broker(properties.get("process.roles", "")):
        del properties["process.roles"]
        ignored.append("process.roles")
    kept = frozenset() if properties.get("zookeeper.connect") else _quorums_of_several(properties)
    controllers = _names(properties.get("controller.listener.names", ""))
    own_settings = tuple(f"listener.name.{name.lower()}." for name in controllers)
    for name in given:
        is_ignored = name in _IGNORED or name.startswith((*_IGNORED_PREFIXES, *own_settings))
        if is_ignored and name not in kept:
            del properties[name]
            ignored.append(name)
    unserved: set[str] = set()
    for key in ("listeners", "advertised.listeners"):
        unserved |= _remove_listeners(properties, key, controllers)
    return Translation(
        properties, sorted(ignored) + [f"listener {name}" for name in sorted(unserved)], node_id
    )


def _take_node_id(properties: dict[str, str]) -> str | None:
    node_id = properties.get("node.id")
    if node_id is None or properties.get("broker.id", node_id) != node_id:
        return None
    del properties["node.id"]
    properties["broker.id"] = node_id
    return node_id


def _is_broker(roles: str) -> bool:
    named = {role.strip() for role in roles.split(",")}
    return "broker" in named and named <= _ROLES


def _quorums_of_several(properties: Mapping[str, str]) -> frozenset[str]:
    return frozenset(key for key in _QUORUM if len(_names(properties.get(key, ""))) > 1)


def _remove_listeners(properties: dict[str, str], key: str, controllers: frozenset[str]) -> set[str]:
    """Remove the listeners of controllers; a key without any other listener goes too."""
    found: set[str] = set()
    kept: list[str] = []
    for entry in properties.get(key, "").split(","):
        name = entry.partition("://")[0].strip().upper()
        if name in controllers:
            found.add(name)
        else:
            kept.append(entry)
    if found and kept:
        properties[key] = ",".join(kept)
    elif found:
        del properties[key]
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(each.strip().upper() for each in text.split(",") if each.strip())
