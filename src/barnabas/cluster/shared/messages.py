"""Messages between a broker and the shared store: one class each, with its fields.

A conversation begins with `Hello`, which the store answers by `Welcome`, or by `Expired` if the session is
over. Later requests are pipelined. Each has a number that its answer repeats; an `Event` has the number 0.

Every answer names the zxid up to which the store has sent all events of this connection; an event names 0. A
broker that connects again names the zxid with its watches, and receives the events that it missed
(`SetWatches`).

`ProcessEnded` and `SupervisedEnded` come from a supervisor, on a connection without a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.cluster.coordination.contract import (
    BadArguments,
    BadVersion,
    CoordinationError,
    DataTooLarge,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Stat,
    WatchEvent,
)
from barnabas.cluster.shared.fields import (
    BLOB,
    FLAG,
    INT,
    OPERATION,
    RESULT,
    STAT,
    TEXT,
    Field,
    MalformedMessage,
    Reader,
    listed,
    maybe,
    record,
    tagged,
)

VERSION: Final = 1
EVENT_NUMBER: Final = 0


class Hello(NamedTuple):
    version: int
    session_id: int
    """0 asks for a new session."""
    timeout_ms: int
    process: str
    """Name that a supervisor gave to this process; empty without one."""


class Ping(NamedTuple):
    """Heartbeat."""


class Write(NamedTuple):
    """A transaction. With `make_parents`, the missing parents of the first operation are created too."""

    operations: Sequence[Operation]
    make_parents: bool


class MakePaths(NamedTuple):
    paths: Sequence[str]


class Get(NamedTuple):
    path: str
    watched: bool


class GetMany(NamedTuple):
    """The answer may have fewer elements than were asked for, but at least one."""

    paths: Sequence[str]


class Exists(NamedTuple):
    path: str
    watched: bool


class WatchMany(NamedTuple):
    paths: Sequence[str]


class Children(NamedTuple):
    path: str
    watched: bool


class SetWatches(NamedTuple):
    """Watches that a broker has when it connects again, and the last zxid that it has seen."""

    zxid: int
    data: Sequence[str]
    missing: Sequence[str]
    """Paths with a data watch on a missing node."""
    children: Sequence[str]


class Close(NamedTuple):
    """Ends the session."""


class ProcessEnded(NamedTuple):
    """Ends the sessions of one supervised process, which no longer exists."""

    process: str


class SupervisedEnded(NamedTuple):
    """Ends the sessions of all supervised processes: none of them exists any more."""


Request = (
    Hello | Ping | Write | MakePaths | Get | GetMany | Exists | WatchMany | Children | SetWatches | Close
    | ProcessEnded | SupervisedEnded
)  # fmt: skip


class Welcome(NamedTuple):
    session_id: int
    timeout_ms: int


class Expired(NamedTuple):
    """The session of `Hello` is over."""


class Done(NamedTuple):
    """Answer without a value."""


class Results(NamedTuple):
    results: Sequence[Result]


class Node(NamedTuple):
    data: bytes
    stat: Stat


class Nodes(NamedTuple):
    found: Sequence[Node | None]


class Presence(NamedTuple):
    stat: Stat | None


class Missing(NamedTuple):
    """Nodes of a `WatchMany` that do not exist."""

    paths: Sequence[str]


class Names(NamedTuple):
    names: Sequence[str]


class Failed(NamedTuple):
    code: int
    text: str
    position: int
    """Of the failed operation in a `multi`, or -1."""


class Event(NamedTuple):
    code: int
    path: str


Answer = (
    Welcome | Expired | Done | Results | Node | Nodes | Presence | Missing | Names | Failed | Event
)  # fmt: skip

_NODE = record(Node, BLOB, STAT)
_TEXTS = listed(TEXT)

_REQUEST: Field[Request] = tagged(
    [
        (1, Hello, record(Hello, INT, INT, INT, TEXT)),
        (2, Ping, record(Ping)),
        (3, Write, record(Write, listed(OPERATION), FLAG)),
        (4, MakePaths, record(MakePaths, _TEXTS)),
        (5, Get, record(Get, TEXT, FLAG)),
        (6, GetMany, record(GetMany, _TEXTS)),
        (7, Exists, record(Exists, TEXT, FLAG)),
        (8, WatchMany, record(WatchMany, _TEXTS)),
        (9, Children, record(Children, TEXT, FLAG)),
        (10, SetWatches, record(SetWatches, INT, _TEXTS, _TEXTS, _TEXTS)),
        (11, Close, record(Close)),
        (12, ProcessEnded, record(ProcessEnded, TEXT)),
        (13, SupervisedEnded, record(SupervisedEnded)),
    ]
)
_ANSWER: Field[Answer] = tagged(
    [
        (1, Welcome, record(Welcome, INT, INT)),
        (2, Expired, record(Expired)),
        (3, Done, record(Done)),
        (4, Results, record(Results, listed(RESULT))),
        (5, Node, _NODE),
        (6, Nodes, record(Nodes, listed(maybe(_NODE)))),
        (7, Presence, record(Presence, maybe(STAT))),
        (8, Missing, record(Missing, _TEXTS)),
        (9, Names, record(Names, _TEXTS)),
        (10, Failed, record(Failed, INT, TEXT, INT)),
        (11, Event, record(Event, INT, TEXT)),
    ]
)

ERRORS: Final[dict[int, type[CoordinationError]]] = {
    1: NoNode,
    2: NodeExists,
    3: BadVersion,
    4: NotEmpty,
    5: NoChildrenForEphemerals,
    6: BadArguments,
    7: DataTooLarge,
}
"""Refusals that the store sends. It sends no other: a store that fails ends, and its connections break. So do
the connections of a session that ends, and `Hello` is then answered by `Expired`."""
_ERROR_CODES = {kind: code for code, kind in ERRORS.items()}
_EVENT_TYPES = dict(enumerate(EventType, 1))
_EVENT_CODES = {kind: code for code, kind in _EVENT_TYPES.items()}


def encode_request(number: int, request: Request) -> bytes:
    out: list[bytes] = []
    INT.put(out, number)
    _REQUEST.put(out, request)
    return b"".join(out)


def decode_request(payload: bytes) -> tuple[int, Request]:
    reader = Reader(payload)
    number, request = INT.take(reader), _REQUEST.take(reader)
    reader.end()
    return number, request


def encode_answer(number: int, zxid: int, answer: Answer) -> bytes:
    out: list[bytes] = []
    INT.put(out, number)
    INT.put(out, zxid)
    _ANSWER.put(out, answer)
    return b"".join(out)


def decode_answer(payload: bytes) -> tuple[int, int, Answer]:
    reader = Reader(payload)
    number, zxid, answer = INT.take(reader), INT.take(reader), _ANSWER.take(reader)
    reader.end()
    return number, zxid, answer


def failed(error: CoordinationError) -> Failed:
    """Answer for a refusal, which must be one of `ERRORS`."""
    return Failed(_ERROR_CODES[type(error)], error.path, -1 if error.index is None else error.index)


def error_of(answer: Failed) -> CoordinationError:
    kind = ERRORS.get(answer.code)
    if kind is None:
        raise MalformedMessage(f"error {answer.code} is unknown")
    error = kind(answer.text)
    error.index = None if answer.position < 0 else answer.position
    return error


def event_of(event: WatchEvent) -> Event:
    return Event(_EVENT_CODES[event.type], event.path)


def watch_event_of(event: Event) -> WatchEvent:
    kind = _EVENT_TYPES.get(event.code)
    if kind is None:
        raise MalformedMessage(f"event {event.code} is unknown")
    return WatchEvent(kind, event.path)
