"""Request headers v0-2 and response headers v0-1.

The API and version decide which header a message has. A request has v2 (tagged fields) in flexible versions,
v0 (no client id) in ControlledShutdown v0, and v1 otherwise. A response has v1 in flexible versions and v0
otherwise. ApiVersions is the exception: a client that guessed an unsupported version must be able to read its
response.

The client id is never compact, and decoding it is lenient. It is a label for logs and quotas, and no reason
to close a connection. A replacement character takes three bytes for an invalid one. Responses and records
repeat the result, so it is cut to the limit of a string.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.core.limits import STRING_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.core.steps import Sliced, advance
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, NEVER_FLEXIBLE, ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import primitives
from barnabas.protocol.schema.declarations import Encoder, Part
from barnabas.protocol.schema.message import Message

_FIXED: Final = struct.Struct(">hhi")
_WITH_CLIENT_ID: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AND_NO_TAGS: Final = struct.Struct(">ix")
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)  # enum member lookup is slow
_FLEXIBLE_SINCE: Final = FLEXIBLE_SINCE
_TOO_SHORT: Final = struct.error
_NO_TEXT: Final = UnicodeDecodeError


class RequestHeader(NamedTuple):
    """`api_key` is the number that the client sent, known or not. The body begins at `body_position`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """Header of a request frame.

    An unknown API key is no error here: the header is read as far as possible, so that the caller may answer
    or close.
    """
    return RequestHeader(*request_header_fields(frame))


def request_header_fields(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """The header as a plain tuple: creating a named tuple costs as much as decoding its fields."""
    api_key: int
    version: int
    correlation_id: int
    length: int
    try:
        api_key, version, correlation_id, length = _WITH_CLIENT_ID.unpack_from(frame)
    except _TOO_SHORT:
        return _request_header_fields_v0(frame)
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return _request_header_fields_v0(frame)
    position = 10
    client_id = None
    if length >= 0:
        position += length
        if position > len(frame):
            primitives.reject_length("client id", length, 10, len(frame))
        try:
            client_id = str(frame[10:position], "utf-8")
        except _NO_TEXT:
            client_id = _lenient(frame[10:position])
    if version >= _FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
        try:
            position = primitives.skip_tagged_fields(frame, position) if frame[position] else position + 1
        except IndexError:
            raise MalformedMessage("the request header is truncated") from None
    return api_key, version, correlation_id, client_id, position


def _lenient(raw: memoryview) -> str:
    text = str(raw, "utf-8", "replace")
    return str(text.encode()[:STRING_BYTES_MAX], "utf-8", "ignore")


def _request_header_fields_v0(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    try:
        api_key, version, correlation_id = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("the request header is truncated") from None
    if api_key != _CONTROLLED_SHUTDOWN or version != 0:
        raise MalformedMessage("the request header is truncated")
    return api_key, version, correlation_id, None, 8


def read_response_header(frame: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """Correlation id and position of the body, in the response to a request of this version."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not response_header_is_tagged(api_key, version):
            return correlation_id, 4
        return correlation_id, primitives.skip_tagged_fields(frame, 4)
    except (struct.error, IndexError):
        raise MalformedMessage("the response header is truncated") from None


def response_header_is_tagged(api_key: int, version: int) -> bool:
    """Whether a response has header v1."""
    return version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE) and api_key != ApiKey.API_VERSIONS


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Part]:
    """The parts of a request frame, without its size."""
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        out = bytearray(_FIXED.pack(api_key, version, correlation_id))
    elif client_id is None:
        out = bytearray(_WITH_CLIENT_ID.pack(api_key, version, correlation_id, -1))
    else:
        raw = client_id.encode()
        out = bytearray(_WITH_CLIENT_ID.pack(api_key, version, correlation_id, len(raw)))
        out += raw
    if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
        out.append(0)
    parts: list[Part] = []
    out = message.encoder(version)(message, parts, out)
    if out:
        parts.append(out)
    return parts


class ResponseEncoder:
    """Encodes responses of one class and version, for callers that send many of them."""

    __slots__ = ("_cls", "_encode", "pack_header")

    def __init__(self, cls: type[Message], version: int) -> None:
        api = cls.__schema__.api
        assert api is not None, f"{cls.__name__} is not a response"
        tagged = response_header_is_tagged(api, version)
        header = _CORRELATION_ID_AND_NO_TAGS if tagged else _CORRELATION_ID
        self._cls = cls
        self.pack_header: Callable[[int], bytes] = header.pack
        self._encode: Encoder = cls.bounded_encoder(version)

    def encode(self, correlation_id: int, message: Message) -> list[Part]:
        """Parts of a response frame, without its size; LargeMessage when it has many elements."""
        assert type(message) is self._cls, f"{type(message).__name__} instead of {self._cls.__name__}"
        parts: list[Part] = []
        out = self._encode(message, parts, bytearray(self.pack_header(correlation_id)))
        if out:
            parts.append(out)
        return parts


_response_encoders: dict[tuple[type[Message], int], ResponseEncoder] = {}


def response_encoder(cls: type[Message], version: int) -> ResponseEncoder:
    found = _response_encoders.get((cls, version))
    if found is None:
        found = _response_encoders[cls, version] = ResponseEncoder(cls, version)
    return found


def encode_response(correlation_id: int, message: Message, version: int) -> list[Part]:
    """Parts of one response frame, without its size; LargeMessage when it has many elements."""
    return response_encoder(type(message), version).encode(correlation_id, message)


def encode_response_in_slices(
    correlation_id: int, message: Message, version: int, spend: Callable[[int], None]
) -> Sliced[list[Part]]:
    """Encode a response of any size in slices. `spend` is called with the bytes as they are made, and raises
    when a response becomes too large."""
    pack_header = response_encoder(type(message), version).pack_header
    parts: list[Part] = []
    work = message.sliced_encoder(version)(message, parts, bytearray(pack_header(correlation_id)))
    known = 0
    while (ended := advance(work)) is None:
        if len(parts) > known:
            spend(_in_memory_bytes(parts[known:]))
            known = len(parts)
        yield
    if ended.result:
        parts.append(ended.result)
    spend(_in_memory_bytes(parts[known:]))
    return parts


def _in_memory_bytes(parts: list[Part]) -> int:
    return sum([len(part) for part in parts if not isinstance(part, FileRegion)])
