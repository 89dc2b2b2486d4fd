"""Where the settings of users, client ids and addresses are kept: `/config/users/<user>`,
`/config/users/<user>/clients/<client id>`, `/config/clients/<client id>` and `/config/ips/<address>`.

Names are percent-encoded; `<default>` as it stands is everybody who has nothing of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from barnabas.cluster.coordination import (
    BadVersion,
    Coordination,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from barnabas.cluster.notification_znodes import ConfigChangeZnode
from barnabas.cluster.topics import readable_config
from barnabas.cluster.znodes import ConfigZnode
from barnabas.config.client_entities import CLIENTS, IPS, USERS, EntityPart, EntityPath, Values, ValuesChange
from barnabas.config.store import DEFAULT_ENTITY

_SHAPES: Final = ((USERS,), (USERS, CLIENTS), (CLIENTS,), (IPS,))


def entity_path_of(stored: str) -> EntityPath | None:
    """What a note names, `users/alice/clients/app`; None if that is no user, client id or address."""
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
    """None if it cannot be read."""
    stored = stored_path(path)
    (node,) = await znodes.get_many([f"/config/{stored}"])
    return {} if node is None else readable_config(stored, node[0])


async def read_entities(znodes: Coordination) -> dict[EntityPath, Values]:
    """All that have something set; what cannot be read is left out, with a word in the log."""
    users = await _children(znodes, f"/config/{USERS}")
    paths = [f"{USERS}/{name}" for name in users]
    for type_ in (CLIENTS, IPS):
        paths += [f"{type_}/{name}" for name in await _children(znodes, f"/config/{type_}")]
    for name in users:
        clients = await _children(znodes, f"/config/{USERS}/{name}/{CLIENTS}")
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
    """Write what `change` makes of what is there, on condition that it is still there, and leave the note
    that tells the brokers to look. Repeated until nobody else wrote meanwhile."""
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
    """The node with the parents that it lacks: a client id of a user that has nothing else set."""
    words = path.split("/")
    parents = ["/".join(words[:count]) for count in range(3, len(words))]
    missing = [
        parent for parent, node in zip(parents, await znodes.get_many(parents), strict=True) if node is None
    ]
    return [*(Create(parent) for parent in missing), Create(path, data)]


async def _children(znodes: Coordination, path: str) -> list[str]:
    try:
        return await znodes.children(path)
    except NoNode:
        return []
