"""Settings of users, client ids and addresses: SCRAM credentials and quotas.

An entity is a user, a client id, a user's client id, or an address. The name None stands for all entities
without settings of their own (`<default>` in the store). All keys of an entity are one value in the store, so
a change is a function from the old value to the new one. A change of a quota keeps the credentials beside it,
also if another broker changes those at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.core.waiting import Lock

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"


class EntityPart(NamedTuple):
    type: str
    name: str | None


EntityPath = tuple[EntityPart, ...]
"""One part, or a user and a client id."""

Values = Mapping[str, str]
ValuesChange = Callable[[Values], Values]
EntityListener = Callable[[EntityPath, Values], None]

NOTHING_SET: Final[Values] = {}


def user(name: str | None) -> EntityPath:
    return (EntityPart(USERS, name),)


class ClientEntityStore(Protocol):
    async def read_entity(self, path: EntityPath) -> Values | None:
        """None if the stored value is unreadable."""
        ...

    async def read_entities(self) -> dict[EntityPath, Values]:
        """All entities, without unreadable ones."""
        ...

    async def change_entity(self, path: EntityPath, change: ValuesChange) -> Values:
        """Write the result of `change` on the stored value, and notify the other brokers."""
        ...


class ClientEntities:
    """Loaded at the start, then changed here or by notifications of other brokers."""

    def __init__(self, store: ClientEntityStore) -> None:
        self._store = store
        self._values: dict[EntityPath, Values] = {}
        self._listeners: list[EntityListener] = []
        self._turn = Lock()
        """Held during each read and write, so that an older read never replaces a newer one."""

    async def load(self) -> None:
        self._values = await self._store.read_entities()

    def on_change(self, listener: EntityListener) -> None:
        """Call `listener` with each entity and all its settings, now and after every change."""
        self._listeners.append(listener)
        for path, values in self:
            listener(path, values)

    def __iter__(self) -> Iterator[tuple[EntityPath, Values]]:
        return iter(tuple(self._values.items()))

    def get(self, path: EntityPath) -> Values:
        return self._values.get(path, NOTHING_SET)

    async def change(self, path: EntityPath, change: ValuesChange) -> None:
        async with self._turn:
            self._put(path, await self._store.change_entity(path, change))

    async def reload(self, path: EntityPath) -> None:
        """Read an entity that another broker has changed. An unreadable value changes nothing."""
        async with self._turn:
            values = await self._store.read_entity(path)
            if values is not None:
                self._put(path, values)

    async def reload_all(self) -> None:
        """Read all known and stored entities: notifications may have been lost."""
        async with self._turn:
            found = await self._store.read_entities()
            for path, values in found.items():
                self._put(path, values)
            for path in self._values.keys() - found.keys():
                left = await self._store.read_entity(path)
                if left is not None:
                    self._put(path, left)

    def _put(self, path: EntityPath, values: Values) -> None:
        if values == self.get(path):
            return
        if values:
            self._values[path] = values
        else:
            del self._values[path]
        for listener in self._listeners:
            listener(path, values)
