"""Frames of Kafka's protocol on a stream, and the messages in them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final, NamedTuple

from barnabas.core.errors import KafkaError
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.headers import read_request_header, read_response_header

FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_SIZE: Final = struct.Struct(">i")
_SECRET: Final = frozenset({
    ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN,
})  # fmt: skip
"""APIs whose requests or answers have passwords, or what serves as one."""
_SECRET_CONFIGS: Final = ("password", "jaas", "ssl.keystore.key")
_UNDECODABLE: Final = (KafkaError, MalformedMessage, ValueError, LookupError)
"""Errors of a decoder: a broken message, a version or an API that this release does not know."""


class BrokenFrame(ConnectionError):
    """The peer sends a size that no frame has."""


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame, without its size; None at the end of the stream."""
    try:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise BrokenFrame(f"a frame of {size} bytes; the limit is {FRAME_BYTES_MAX}")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None


def framed(frame: bytes) -> bytes:
    return _SIZE.pack(len(frame)) + frame


class Request(NamedTuple):
    """A decoded request. `message` is None for an API or a version that this release does not know."""

    api: ApiKey | None
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    is_token: bool = False
    """A token of SASL without a header, as after version 0 of SaslHandshake."""

    @property
    def is_secret(self) -> bool:
        """Whether the request or its answer has a password, or what serves as one."""
        return self.is_token or self.api in _SECRET or _sets_secret(self.message)

    @property
    def has_answer(self) -> bool:
        """A producer with acks=0 gets none."""
        return not (self.api is ApiKey.PRODUCE and self.message is not None and self.message.acks == 0)

    @property
    def name(self) -> str:
        return "unknown API" if self.api is None else f"{self.api.camel_name} v{self.version}"

    def decoded_answer(self, frame: bytes) -> Any:
        """The message of its answer; None if it cannot be decoded."""
        if self.api is None or self.message is None:
            return None
        view = memoryview(bytearray(frame))
        try:
            _, position = read_response_header(view, self.api, self.version)
            message, _ = response_class(self.api).decoder(self.version)(view, position)
        except _UNDECODABLE:
            return None
        return message


def decode_request(frame: bytes) -> Request:
    view = memoryview(bytearray(frame))
    try:
        header = read_request_header(view)
    except MalformedMessage:
        return Request(None, 0, 0, None, None)
    try:
        api: ApiKey | None = ApiKey(header.api_key)
    except ValueError:
        api = None
    message = None
    if api is not None:
        try:
            message, _ = request_class(api).decoder(header.api_version)(view, header.body_position)
        except _UNDECODABLE:
            message = None
    return Request(api, header.api_version, header.correlation_id, header.client_id, message)


def _sets_secret(message: Any) -> bool:
    """Whether a request of AlterConfigs or IncrementalAlterConfigs names a config that is a secret."""
    return any(
        part in config.name
        for resource in getattr(message, "resources", None) or ()
        for config in getattr(resource, "configs", None) or ()
        for part in _SECRET_CONFIGS
    )


def joined(parts: Any) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)
