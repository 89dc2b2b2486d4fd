"""Last requests of clients to a test's broker, decoded when a test asks for them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.headers import read_request_header
from barnabas.testing.asking.names import api_named

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
KEPT_REQUESTS_MAX: Final = 10_000


class SeenRequest(NamedTuple):
    """A request as a client sent it; `message` is its class in `barnabas.protocol.messages`."""

    api: str
    version: int
    client_id: str | None
    message: Any


class RequestLog:
    """The last requests of a broker, within a bound on their number and bytes.

    The broker's loop adds and the test reads: both are one operation on a deque, which needs no lock.
    """

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self.received = 0
        """Requests in the whole life of the log, also those that it keeps no more."""

    def add(self, frame: memoryview) -> None:
        self.received += 1
        self._frames.append(bytes(frame))
        self._bytes += len(frame)
        while self._bytes > KEPT_BYTES_MAX or len(self._frames) > KEPT_REQUESTS_MAX:
            self._bytes -= len(self._frames.popleft())

    def seen(self, api: str | None = None, client_id: str | None = None) -> list[SeenRequest]:
        """Requests in the order of their arrival, malformed ones left out."""
        if api is not None:
            api_named(api)
        found = [_decoded(frame) for frame in tuple(self._frames)]
        return [
            each
            for each in found
            if each is not None
            and (api is None or each.api == api)
            and (client_id is None or each.client_id == client_id)
        ]


def _decoded(frame: bytes) -> SeenRequest | None:
    view = memoryview(frame)
    try:
        header = read_request_header(view)
        api = ApiKey(header.api_key)
        message, _ = request_class(api).decoder(header.api_version)(view, header.body_position)
    except (MalformedMessage, ValueError, KeyError):
        return None
    return SeenRequest(api.camel_name, header.api_version, header.client_id, message)
