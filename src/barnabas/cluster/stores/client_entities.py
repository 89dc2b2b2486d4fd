"""Quotas and credentials of users, client ids and addresses in the store.

The paths are `/config/users/<user>`, `/config/users/<user>/clients/<client id>`, `/config/clients/<client
id>` and `/config/ips/<address>`. Names are percent-encoded. A literal `<default>` stands for every entity
without settings of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Coordination,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    children_if_any,
)
from barnabas.cluster.stores.topics import readable_config
from barnabas.cluster.znodes.layout import ConfigZnode
from barnabas.cluster.znodes.notifications import ConfigChangeZnode
from barnabas.config.dynamic.client_entities import (
    CLIENTS,
    IPS,
    USERS,
    EntityPart,
    EntityPath,
    Values,
    ValuesChange,
)
from barnabas.config.dynamic.store import DEFAULT_ENTITY

_SHAPES: Final = ((USERS,), (USERS, CLIENTS), (CLIENTS,), (IPS,))


def entity_path_of(stored: str) -> EntityPath | None:
    """Entity that a notification names, e.g. `users/alice/clients/app`; None for another kind of entity."""
    words = stored.split("/")
    if tuple(words[::2]) not in _SHAPES or not all(words[1::2]) or len(words) % 2:
        return None
    return tuple(
        EntityPart(type_, None if name == DEFAULT_ENTITY else unquote(name))
        for type_, name in zip(words[::2], words[1::2], strict=True)
    )


def stored_path(path: EntityPath) -> str:
    return "/".join(f"{part.type}/{_stored_name(part.name)}" for part in path)


def _stored_name(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


async def read_entity(znodes: Coordination, path: EntityPath) -> Values | None:
    """Settings of an entity; None if they cannot be read."""
    stored = stored_path(path)
    (node,) = await znodes.get_many([f"/config/{stored}"])
    return {} if node is None else readable_config(stored, node[0])


async def read_entities(znodes: Coordination) -> dict[EntityPath, Values]:
    """All entities with settings. Unreadable ones are left out, with a line in the log."""
    users = await children_if_any(znodes, f"/config/{USERS}")
    paths = [f"{USERS}/{name}" for name in users]
    for type_ in (CLIENTS, IPS):
        paths += [f"{type_}/{name}" for name in await children_if_any(znodes, f"/config/{type_}")]
    for name in users:
        clients = await children_if_any(znodes, f"/config/{USERS}/{name}/{CLIENTS}")
        paths += [f"{USERS}/{name}/{CLIENTS}/{client}" for client in clients]
    nodes = await znodes.get_many([f"/config/{path}" for path in paths])
    found: dict[EntityPath, Values] = {}
    for stored, node in zip(paths, nodes, strict=True):
        values = readable_config(stored, node[0]) if node is not None else None
        path = entity_path_of(stored)
        if values and path is not None:
            found[path] = values
    return found


async def change_entity(znodes: Coordination, path: EntityPath, change: ValuesChange) -> Values:
    """Write `change(present settings)` and the change notification in one transaction.

    The write is conditional on the version that was read, and repeated after a conflict.
    """
    stored = stored_path(path)
    note = Create(ConfigChangeZnode.CREATE_PATH, ConfigChangeZnode.encode(stored), sequential=True)
    while True:
        (node,) = await znodes.get_many([f"/config/{stored}"])
        values = dict(change({} if node is None else ConfigZnode.decode(node[0])))
        data = ConfigZnode.encode(values)
        if node is None:
            operations: Sequence[Operation] = await _making(znodes, f"/config/{stored}", data)
        else:
            operations = [SetData(f"/config/{stored}", data, node[1].version)]
        try:
            await znodes.multi([*operations, note])
        except (BadVersion, NodeExists, NoNode):
            continue  # another writer was first
        return values


async def _making(znodes: Coordination, path: str, data: bytes) -> list[Operation]:
    """Create the node with its missing parents, as for a client id of a user without other settings."""
    words = path.split("/")
    parents = ["/".join(words[:count]) for count in range(3, len(words))]
    missing = [
        parent for parent, node in zip(parents, await znodes.get_many(parents), strict=True) if node is None
    ]
    return [*(Create(parent) for parent in missing), Create(path, data)]
