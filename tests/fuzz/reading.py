"""Answers of the broker, read to their last byte.

Many answers of a sequence are the same bytes for the same API and version. Those were read before, and read
again they would give the same message: `Reader` tells such an answer by its bytes, and reads every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema.declarations import MessageType
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from tests.fuzz.steps import Step

REMEMBERED_MAX = 20_000
REMEMBERED_BYTES_MAX = 2_048
"""A longer answer is read each time."""


class Reading(NamedTuple):
    message: Message | None
    """None if the answer cannot be read, or was read before."""
    complaint: str | None = None


AGAIN = Reading(None)


class Reader:
    def __init__(self) -> None:
        self._read: set[tuple[int, int, bytes]] = set()

    def read(self, step: Step, answer: bytes) -> Reading:
        if len(answer) > REMEMBERED_BYTES_MAX:
            return Reading(*read_answer(step, answer))
        same = (step.key, step.version, answer[4:])
        if same in self._read:
            return AGAIN
        message, complaint = read_answer(step, answer)
        if complaint is None:
            if len(self._read) >= REMEMBERED_MAX:
                self._read.clear()
            self._read.add(same)
        return Reading(message, complaint)


def read_answer(step: Step, answer: bytes) -> tuple[Message | None, str | None]:
    """The answer, and what is wrong with its bytes."""
    view = memoryview(answer)
    try:
        _, position = read_response_header(view, step.key, step.version)
        message, end = _decoder(step.key, step.version)(view, position)
    except MalformedMessage as error:
        return None, f"{_name(step)}: {error}"
    if end == len(answer):
        return message, None
    return message, f"{_name(step)}: {len(answer) - end} bytes are left over"


@cache
def _decoder(key: int, version: int) -> Callable[[memoryview, int], tuple[Message, int]]:
    return response_class(ApiKey(key)).decoder(version)


def _name(step: Step) -> str:
    return f"the answer to {ApiKey(step.key).name} v{step.version}"


def codes_in(message: Message) -> Iterator[int]:
    """All error codes of an answer."""
    codes, nested = _fields(type(message))
    for name in codes:
        yield getattr(message, name)
    for name in nested:
        value = getattr(message, name)
        for each in value if isinstance(value, list) else (value,):
            if each is not None:
                yield from codes_in(each)


@cache
def _fields(cls: MessageType) -> tuple[list[str], list[str]]:
    """Names of the error codes, and of the fields that hold structs."""
    fields = cls.__schema__.fields
    codes = [field.name for field in fields if field.name.endswith("error_code")]
    return codes, [field.name for field in fields if (field.kind.element or field.kind).message is not None]
