"""A script of a known fault, and how it asks a broker."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from tests.fuzz.connection import Connection
from tests.fuzz.world import World, prepare
from tests.support import hostile

ANSWER_S_MAX = 300.0


class Fault(NamedTuple):
    name: str
    show: Callable[[World], Iterator[str]]
    is_flood: bool = False
    """Whether its many requests keep the loop at work, so that another client's wait says nothing."""


def ask(connection: Connection, key: ApiKey, version: int, message: Message) -> Any:
    connection.send(hostile.frame_of(key, version, message))
    return read(key, version, connection.one_answer())


def read(key: ApiKey, version: int, answer: bytes) -> Any:
    view = memoryview(answer)
    _, position = read_response_header(view, key, version)
    return response_class(key).decoder(version)(view, position)[0]


@contextlib.contextmanager
def beside(
    world: World, settings: Mapping[str, str], arguments: Sequence[str] = (), *, is_measured: bool = False
) -> Iterator[World]:
    """Another broker, with settings of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-beside-", ignore_cleanup_errors=True) as directory:
        other = World(Path(directory), world.bug, settings, arguments, is_measured=is_measured)
        other.start()
        try:
            prepare(other)
            yield other
        finally:
            other.kill()
