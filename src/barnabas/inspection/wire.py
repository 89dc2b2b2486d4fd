"""Frames of the inspection socket: a length of four bytes, then a JSON object.

A question is `{"ask": name, "principal": "User:alice" or null, ...parameters}`. An answer is `{"ok": ...}` or
`{"error": code, "message": text}`, with the codes of the Kafka protocol.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.core.steps import Sliced

SOCKET_NAME: Final = "inspection.sock"
"""In the first log directory of a broker."""
QUESTION_BYTES_MAX: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024

LENGTH: Final = struct.Struct(">I")

Question = dict[str, Any]


def framed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def encode_question(question: Question) -> bytes:
    payload = json.dumps(question).encode()
    if len(payload) > QUESTION_BYTES_MAX:
        raise InvalidRequest(f"a question has {len(payload)} bytes; the limit is {QUESTION_BYTES_MAX}")
    return framed(payload)


def decode_question(payload: bytes) -> Question:
    try:
        question = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the question is not JSON: {error}") from None
    if not isinstance(question, dict):
        raise InvalidRequest("a question is a JSON object")
    return question


def encode_error(error: KafkaError) -> bytes:
    return framed(json.dumps({"error": error.code, "message": error.message}).encode())


def encode_answer(answer: Any) -> Sliced[bytearray]:
    """The frame of an answer. Long lists are encoded element by element, with pauses between them. A large
    answer is in memory once.
    """
    frame = bytearray(LENGTH.size) + b'{"ok":'
    for piece in _pieces(answer):
        frame += piece
        if len(frame) > ANSWER_BYTES_MAX:
            raise InvalidRequest(f"the answer has more than {ANSWER_BYTES_MAX} bytes: ask for less")
        yield
    frame += b"}"
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def _pieces(value: Any) -> Iterator[bytes]:
    """The text of a value, in pieces of at most one element of a list of an object of the top level."""
    if isinstance(value, dict):
        start = b"{"
        for name, member in value.items():
            yield start + json.dumps(name).encode() + b":"
            yield from _list_pieces(member)
            start = b","
        yield b"}" if value else b"{}"
    else:
        yield from _list_pieces(value)


def _list_pieces(value: Any) -> Iterator[bytes]:
    if not isinstance(value, list | tuple):
        yield json.dumps(value).encode()
        return
    start = b"["
    for element in value:
        yield start + json.dumps(element).encode()
        start = b","
    yield b"]" if value else b"[]"
