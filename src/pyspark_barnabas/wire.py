"""One blocking connection to one broker: a request out, its answer in.

Spark's tasks are threads of work in processes of their own, so nothing is gained by an event loop
there. The messages are those of `barnabas.protocol`; only the socket is this module's own.

`post` and `take` are the two halves of `ask`: a reader posts its next fetch before it decodes the
answer to the last one, so that the broker and the network work while numpy does. Answers come in
the order of the requests. Each answer gets memory of its own, because decoded columns refer to it
for as long as they live.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np

from barnabas import __version__
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import NetworkException, UnsupportedVersion, error_for
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.headers import encode_request, read_response_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Buffer, Message

Response = TypeVar("Response", bound=Message)

_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
_FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
"""An answer that claims to be larger is not one."""
_BUFFERS_PER_SEND_MAX: Final = 512
"""Below every system's limit for one `sendmsg`."""


class _Posted(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    response_class: type[Message]


class Connection:
    """Open one with `connect`; after any error it is closed and stays so."""

    def __init__(self, stream: socket.socket, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint = endpoint
        self._socket = stream
        self._client_id = client_id
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._posted: deque[_Posted] = deque()
        self._arrived: deque[Any] = deque()
        """Answers that came before one that was asked for, and are yet to be taken."""
        self._correlation_id = 0
        self.is_closed = False

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_ms: float,
        connect_timeout_ms: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """A connection that knows what its broker speaks, or NETWORK_EXCEPTION that says why not."""
        try:
            stream = socket.create_connection(endpoint, (connect_timeout_ms or timeout_ms) / 1_000)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                stream = tls.wrap_socket(stream, server_hostname=endpoint.host)
        except OSError as error:
            raise NetworkException(f"cannot reach {endpoint} ({error})") from error
        connection = cls(stream, endpoint, client_id)
        try:
            connection._settle_versions()
        except BaseException:
            connection.close()
            raise
        stream.settimeout(timeout_ms / 1_000)
        return connection

    def close(self) -> None:
        self.is_closed = True
        self._posted.clear()
        self._arrived.clear()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def version_of(self, request_class: type[Message], version_max: int | None = None) -> int:
        """The highest version, up to `version_max`, that both sides have of a request."""
        schema = request_class.__schema__
        assert schema.api is not None, "only requests have versions of their own"
        lowest, highest = self._versions.get(schema.api, (0, -1))
        last = schema.versions.last
        version = min(highest, last if version_max is None else min(last, version_max))
        if version < max(lowest, schema.versions.first):
            raise UnsupportedVersion(f"{self.endpoint} has no fitting version of {schema.api.camel_name}")
        return version

    def ask(
        self, request: Message, response_class: type[Response], *, version_max: int | None = None
    ) -> Response:
        """Answers come in the order of the requests: those to what was posted before are kept for `take`."""
        self.post(request, response_class, version_max=version_max)
        while len(self._posted) > 1:
            self._arrived.append(self._receive())
        answer = self._receive()
        assert isinstance(answer, response_class)
        return answer

    def post(
        self, request: Message, response_class: type[Message], *, version_max: int | None = None
    ) -> None:
        """Send; the answer is to be taken later."""
        self._post(request, response_class, self.version_of(type(request), version_max))

    def _post(self, request: Message, response_class: type[Message], version: int) -> None:
        if self.is_closed:
            raise NetworkException(f"the connection to {self.endpoint} is closed")
        api_key = request.__schema__.api
        assert api_key is not None
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        encoded = encode_request(api_key, version, correlation_id, self._client_id, request)
        parts = [part.read() if isinstance(part, FileRegion) else part for part in encoded]
        parts.insert(0, _SIZE.pack(sum(map(len, parts))))
        try:
            self._send(parts)
        except OSError as error:
            self.close()
            raise NetworkException(f"lost the connection to {self.endpoint} ({error})") from error
        self._posted.append(_Posted(correlation_id, api_key, version, response_class))

    def take(self) -> Any:
        """The answer to the oldest request that was posted."""
        return self._arrived.popleft() if self._arrived else self._receive()

    def _receive(self) -> Any:
        if not self._posted:
            raise NetworkException(f"the connection to {self.endpoint} is closed")
        posted = self._posted[0]
        try:
            frame = self._receive_frame()
            correlation_id, position = read_response_header(frame, posted.api_key, posted.version)
            if correlation_id != posted.correlation_id:
                raise MalformedMessage(f"answer {correlation_id} came in place of {posted.correlation_id}")
            version = posted.version
            if posted.api_key is ApiKey.API_VERSIONS and bytes(frame[position : position + 2]) == b"\0\x23":
                version = 0
            answer, _ = posted.response_class.decoder(version)(frame, position)
        except (OSError, EOFError, MalformedMessage) as error:
            self.close()
            what = posted.api_key.camel_name
            raise NetworkException(f"{self.endpoint} did not answer {what} ({error})") from error
        self._posted.popleft()
        return answer

    def _send(self, parts: Sequence[Buffer]) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            for part in parts:
                self._socket.sendall(part)
            return
        waiting = [memoryview(part) for part in parts]
        while waiting:
            sent = self._socket.sendmsg(waiting[:_BUFFERS_PER_SEND_MAX])
            done = 0
            while done < len(waiting) and sent >= len(waiting[done]):
                sent -= len(waiting[done])
                done += 1
            del waiting[:done]
            if sent:
                waiting[0] = waiting[0][sent:]

    def _receive_frame(self) -> memoryview:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if not 4 <= size <= _FRAME_BYTES_MAX:
            raise MalformedMessage(f"a frame of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        frame = np.empty(size, np.uint8).data  # unlike a bytearray's, this memory is not cleared first
        receive_into = self._socket.recv_into
        filled = 0
        while filled < size:
            received = receive_into(frame[filled:])
            if not received:
                raise EOFError("it closed the connection")
            filled += received
        return frame

    def _settle_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name="pyspark-barnabas", client_software_version=__version__
        )
        version = ApiVersionsRequest.__schema__.versions.last
        self._post(request, ApiVersionsResponse, version)
        answer = self.take()
        if answer.error_code == UnsupportedVersion.code:
            offered = [row.max_version for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
            self._post(request, ApiVersionsResponse, min(version - 1, *offered) if offered else 0)
            answer = self.take()
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.endpoint} does not say which versions it speaks")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
