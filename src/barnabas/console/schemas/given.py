"""Protobuf schemas that no registry has: files of the operator, and those that users give on a page.

A schema of a user counts for the session that gave it, and is dropped when too many others follow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.console.formats.bounds import UnusableSchema
from barnabas.console.protobuf.descriptor_set import parse_descriptor_set
from barnabas.console.protobuf.model import File, Message, Types
from barnabas.console.protobuf.proto_text import parse_proto
from barnabas.console.protobuf.well_known import well_known
from barnabas.console.schemas.decoders import Part
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
GIVEN_CHARACTERS_MAX: Final = 64 * 1024
GIVEN_MAX: Final = 64

TopicPart = tuple[str, Part]
"""A topic, and the keys or the values of its records."""


def messages_of_topics(files: Sequence[Path], named: Sequence[str]) -> dict[TopicPart, Message]:
    """Messages for `TOPIC=MESSAGE` or `TOPIC:key=MESSAGE`, from these files. INVALID_CONFIG says what is
    wrong.
    """
    found: list[File] = []
    for path in files:
        try:
            data = read_regular_file(path, FILE_BYTES_MAX + 1)
            found += _files_of(data)
        except OSError as error:
            raise InvalidConfig(f"--proto {path} cannot be read: {error.strerror}") from None
        except UnusableSchema as error:
            raise InvalidConfig(f"--proto {path}: {error}") from None
    types = Types([*well_known(), *found])
    return dict(_named(types, each) for each in named)


def _files_of(data: bytes) -> list[File]:
    if len(data) > FILE_BYTES_MAX:
        raise UnusableSchema("the file is too large")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return parse_descriptor_set(data)
    is_text = all(each.isprintable() or each.isspace() for each in text)
    return [parse_proto(text)] if is_text else parse_descriptor_set(data)


def _named(types: Types, text: str) -> tuple[TopicPart, Message]:
    place, equals, name = text.partition("=")
    topic, colon, part = place.partition(":")
    if not equals or not topic or not name or (colon and part not in ("key", "value")):
        raise InvalidConfig(f"--proto-message is TOPIC=MESSAGE or TOPIC:key=MESSAGE, not {text!r}")
    try:
        message = types.message(name)
    except UnusableSchema as error:
        raise InvalidConfig(f"--proto-message {text}: {error}; there are {_listed(types)}") from None
    return (topic, "key" if part == "key" else "value"), message


def _listed(types: Types) -> str:
    own = [each for each in types.names if not each.startswith(("google.", "confluent."))]
    return ", ".join(own[:20]) or "no messages: give the file with --proto"


class GivenSchemas:
    """Messages by topic: the operator's, and those of sessions."""

    def __init__(self, fixed: Mapping[TopicPart, Message] | None = None) -> None:
        self._fixed = fixed or {}
        self._of_sessions: OrderedDict[tuple[str, TopicPart], tuple[Message, str]] = OrderedDict()

    def give(self, session: str, place: TopicPart, text: str, name: str) -> Message:
        """Read the schema of a user. UNUSABLE_SCHEMA says what is wrong. Without a name the first message
        counts.
        """
        if len(text) > GIVEN_CHARACTERS_MAX:
            raise UnusableSchema(f"a schema has at most {GIVEN_CHARACTERS_MAX:,} characters here")
        file = parse_proto(text)
        types = Types([*well_known(), file])
        if not name and not file.messages:
            raise UnusableSchema("the schema has no message")
        message = types.message(name) if name else file.messages[0]
        self._of_sessions[(session, place)] = (message, text)
        self._of_sessions.move_to_end((session, place))
        while len(self._of_sessions) > GIVEN_MAX:
            self._of_sessions.popitem(last=False)
        return message

    def forget(self, session: str, place: TopicPart) -> None:
        self._of_sessions.pop((session, place), None)

    def text(self, session: str, place: TopicPart) -> str:
        found = self._of_sessions.get((session, place))
        return "" if found is None else found[1]

    def message(self, session: str, place: TopicPart) -> Message | None:
        found = self._of_sessions.get((session, place))
        return self._fixed.get(place) if found is None else found[0]
