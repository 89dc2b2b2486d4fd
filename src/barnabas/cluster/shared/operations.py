"""Requests of a session, carried out on the embedded store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.cluster.coordination.contract import BadArguments, EventType, Watch, WatchEvent
from barnabas.cluster.embedded.durable_sessions import is_of_the_store
from barnabas.cluster.embedded.session import EmbeddedSession
from barnabas.cluster.shared.messages import (
    Answer,
    Children,
    Done,
    Exists,
    Get,
    GetMany,
    MakePaths,
    Missing,
    Names,
    Node,
    Nodes,
    Presence,
    Request,
    Results,
    SetWatches,
    WatchMany,
    Write,
)

PAGE_BYTES: Final = 1024 * 1024
"""An answer to `GetMany` ends after this much data; the broker asks for the rest."""


async def carry_out(  # noqa: PLR0911 - a table of requests
    session: EmbeddedSession, watch: Watch, request: Request
) -> Answer:
    """Answer to a request; raises its refusal. `watch` is left where the request watches."""
    match request:
        case Write() | MakePaths():
            return await _write(session, request)
        case Get(path, watched):
            return Node(*await session.get(path, watch if watched else None))
        case GetMany(paths):
            return await _page(session, paths)
        case Exists(path, watched):
            return Presence(await session.exists(path, watch if watched else None))
        case Children(path, watched):
            return Names(await session.children(path, watch if watched else None))
        case WatchMany(paths):
            await session.watch_many(dict.fromkeys(paths, watch))
            return Missing([path for path in paths if path not in session.store.nodes])
        case SetWatches():
            set_watches(session, watch, request)
            return Done()
        case _:
            raise AssertionError(request)


async def _write(session: EmbeddedSession, request: Write | MakePaths) -> Answer:
    if isinstance(request, MakePaths):
        _refuse_own(request.paths)
        await session.make_paths(request.paths)
        return Done()
    operations = request.operations
    _refuse_own(operation.path for operation in operations)
    if not request.make_parents:
        return Results(await session.multi(operations))
    results = await session.write_with_parents(operations)
    return Results(results[-len(operations) :])


async def _page(session: EmbeddedSession, paths: Sequence[str]) -> Nodes:
    found: list[Node | None] = []
    size = 0
    for each in await session.get_many(paths):
        found.append(None if each is None else Node(*each))
        size += 0 if each is None else len(each[0])
        if size >= PAGE_BYTES:
            break
    return Nodes(found)


def set_watches(session: EmbeddedSession, watch: Watch, request: SetWatches) -> None:
    """Leave the watches of an earlier connection, and fire those whose event was missed."""
    nodes, watches = session.store.nodes, session.watches
    for path in request.data:
        watches.on_data(path, watch)
        if path not in nodes:
            watches.fire([WatchEvent(EventType.DELETED, path)])
        elif nodes[path].mzxid > request.zxid:
            watches.fire([WatchEvent(EventType.CHANGED, path)])
    for path in request.missing:
        watches.on_data(path, watch)
        if path in nodes:
            watches.fire([WatchEvent(EventType.CREATED, path)])
    for path in request.children:
        watches.on_children(path, watch)
        if path not in nodes:
            watches.fire([WatchEvent(EventType.DELETED, path)])
        elif nodes[path].pzxid > request.zxid:
            watches.fire([WatchEvent(EventType.CHILD, path)])


def _refuse_own(paths: Iterable[str]) -> None:
    for path in paths:
        if is_of_the_store(path):
            raise BadArguments(f"{path} belongs to the store itself")
