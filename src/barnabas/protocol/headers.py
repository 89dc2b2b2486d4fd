"""What stands before every body: request header v0-2, response header v0-1.

Which header a message has follows from its API and version. A request has v2 (tagged fields)
in flexible versions, v0 (no client id) in ControlledShutdown v0, and v1 otherwise. A response
has v1 in flexible versions and v0 otherwise, except ApiVersions, whose answer must be legible
to a client that guessed its version wrong.

The client id is never compact, and it is read leniently: it is a label for logs and quotas,
not worth closing a connection over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from barnabas.protocol import primitives
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, NEVER_FLEXIBLE, ApiKey
from barnabas.protocol.declarations import Encoder, Part
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import Message

_FIXED: Final = struct.Struct(">hhi")
_WITH_CLIENT_ID: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AND_NO_TAGS: Final = struct.Struct(">ix")
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)  # looking up a member of an enum is slow
_FLEXIBLE_SINCE: Final = FLEXIBLE_SINCE
_TOO_SHORT: Final = struct.error


class RequestHeader(NamedTuple):
    """`api_key` is whatever the client sent, known or not. The body begins at `body_position`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request frame.

    An unknown API key is no reason to complain here: the header is read as far as it can be,
    so that the caller may answer or close.
    """
    return RequestHeader(*request_header_fields(frame))


def request_header_fields(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """The same without a name for each: to make a named tuple costs as much as to read what is in it."""
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
        client_id = str(frame[10:position], "utf-8", "replace")
    if version >= _FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
        try:
            position = primitives.skip_tagged_fields(frame, position) if frame[position] else position + 1
        except IndexError:
            raise MalformedMessage("the request header is cut short") from None
    return api_key, version, correlation_id, client_id, position


def _request_header_fields_v0(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    try:
        api_key, version, correlation_id = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("the request header is cut short") from None
    if api_key != _CONTROLLED_SHUTDOWN or version != 0:
        raise MalformedMessage("the request header is cut short")
    return api_key, version, correlation_id, None, 8


def read_response_header(frame: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """Correlation id and the position of the body, in the answer to a request of that version."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not response_header_is_tagged(api_key, version):
            return correlation_id, 4
        return correlation_id, primitives.skip_tagged_fields(frame, 4)
    except (struct.error, IndexError):
        raise MalformedMessage("the response header is cut short") from None


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
    """Writes responses of one class and version, for who answers with many of them."""

    __slots__ = ("_cls", "_encode", "pack_header")

    def __init__(self, cls: type[Message], version: int) -> None:
        api = cls.__schema__.api
        assert api is not None, f"{cls.__name__} is no response"
        tagged = response_header_is_tagged(api, version)
        header = _CORRELATION_ID_AND_NO_TAGS if tagged else _CORRELATION_ID
        self._cls = cls
        self.pack_header: Callable[[int], bytes] = header.pack
        self._encode: Encoder = cls.bounded_encoder(version)

    def encode(self, correlation_id: int, message: Message) -> list[Part]:
        """The parts of a response frame, without its size; LargeMessage when there is much in it."""
        assert type(message) is self._cls, f"{type(message).__name__} in place of {self._cls.__name__}"
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
    """The parts of one response frame, without its size; LargeMessage when there is much in it."""
    return response_encoder(type(message), version).encode(correlation_id, message)


def encode_response_in_slices(
    correlation_id: int, message: Message, version: int
) -> Generator[None, None, list[Part]]:
    """The same, whatever is in it, with a stop every few elements."""
    pack_header = response_encoder(type(message), version).pack_header
    parts: list[Part] = []
    encoder = message.sliced_encoder(version)
    out = yield from encoder(message, parts, bytearray(pack_header(correlation_id)))
    if out:
        parts.append(out)
    return parts
