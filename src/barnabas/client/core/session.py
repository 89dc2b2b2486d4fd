"""Protocol of one connection to one broker, without I/O: bytes out, bytes in, answers.

A broker answers the requests of a connection in order, so the open requests are a queue. An answer whose
correlation id is not the one at its head means that the two sides no longer agree. Versions are settled once,
at the start. After that a request uses the highest version that both sides have.

`channel` (asyncio) and `blocking` (a plain socket) move the bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from barnabas import __version__
from barnabas.client.core.frames import SIZE, Allocate, BrokenStream, FrameBuffer, zeroed
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NetworkException, UnsupportedVersion, error_for
from barnabas.core.regions import FileRegion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema.declarations import Buffer
from barnabas.protocol.schema.headers import encode_request, read_response_header
from barnabas.protocol.schema.message import Message

JOINED_BYTES_MAX = 64 * 1024
"""Below this size one copy into one buffer is cheaper than a list for the kernel."""
API_VERSIONS_FIRST_TRIED = ApiVersionsRequest.__schema__.versions.last

_CORRELATION_ID_MAX = 0x7FFF_FFFF


class Pending:
    """Request in flight; `Session.ask` fills it in."""

    __slots__ = ("api_key", "correlation_id", "response_class", "version")

    api_key: ApiKey
    version: int
    response_class: type[Message]
    correlation_id: int

    gives_memory_back = False
    """True when the caller keeps nothing of the answer's frame after handling it."""


P = TypeVar("P", bound=Pending)


class Session(Generic[P]):
    def __init__(
        self,
        peer: Endpoint,
        client_id: str | None,
        *,
        software: str = "barnabas",
        allocate: Allocate = zeroed,
    ) -> None:
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        """Lowest and highest version that the broker supports, by API key."""
        self.finalized_features: Mapping[str, int] = {}
        """Level of each feature of the cluster, such as transaction.version."""
        self.pending: deque[P] = deque()
        self.versions_request = ApiVersionsRequest(
            client_software_name=software, client_software_version=__version__
        )
        self.peer = peer
        """Address for error messages."""
        self._client_id = client_id
        self.frames = FrameBuffer(allocate)
        """Receive buffer."""
        self._correlation_id = 0

    def version_for(self, request_class: type[Message], version_max: int | None = None) -> int:
        """Highest version of a request, up to `version_max`, that client and broker share."""
        schema = request_class.__schema__
        assert schema.api is not None, "only requests have versions of their own"
        ours = schema.versions
        lowest, highest = self.api_versions.get(schema.api, (0, -1))
        version = min(highest, ours.last if version_max is None else min(ours.last, version_max))
        if version < max(lowest, ours.first):
            known = f"{lowest} to {highest}" if highest >= 0 else "none"
            raise UnsupportedVersion(
                f"{self.peer} has no usable version of {schema.api.camel_name}: it has {known}"
            )
        return version

    def ask(self, request: Message, response_class: type[Message], version: int, pending: P) -> list[Buffer]:
        """Encode a request. Its answer arrives with `pending`."""
        api_key = request.__schema__.api
        assert api_key is not None, "only requests are sent"
        pending.api_key = api_key
        pending.version = version
        pending.response_class = response_class
        pending.correlation_id = self._correlation_id
        parts = self.encode(request, version)
        self.pending.append(pending)
        return parts

    def encode(self, request: Message, version: int) -> list[Buffer]:
        """Encode a request that has no answer."""
        api_key = request.__schema__.api
        assert api_key is not None, "only requests are sent"
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        parts = [
            part.read() if isinstance(part, FileRegion) else part
            for part in encode_request(api_key, version, correlation_id, self._client_id, request)
        ]
        size = sum(map(len, parts))
        if size <= JOINED_BYTES_MAX:
            return [b"".join((SIZE.pack(size), *parts))]
        return [SIZE.pack(size), *parts]

    def received(self, size: int) -> Iterator[tuple[P, Any]]:
        """Answers that `size` more bytes complete, in the order of their requests. Take them all before
        receiving again, unless it raises BrokenStream.
        """
        for frame in self.frames.received(size):
            if not self.pending:
                raise BrokenStream("the broker sent an answer without a request")
            pending = self.pending[0]
            try:
                answer = _decode(pending, frame)
            except MalformedMessage as error:
                raise BrokenStream(
                    f"the answer to {pending.api_key.camel_name} cannot be decoded: {error}"
                ) from error
            self.pending.popleft()
            if pending.gives_memory_back:
                self.frames.reuse(frame)
            yield pending, answer

    def settle_versions(self, asked: int, answer: ApiVersionsResponse) -> int | None:
        """Take the answer to `versions_request`. Returns the version for a second request, or None when
        versions are settled.
        """
        if answer.error_code == UnsupportedVersion.code and asked:
            offered = [row.max_version for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
            return min(asked - 1, *offered) if offered else 0
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.peer} rejects ApiVersions")
        self.api_versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        self.finalized_features = {row.name: row.max_version_level for row in answer.finalized_features}
        return None

    def lost(self, reason: str) -> NetworkException:
        return NetworkException(f"lost the connection to {self.peer}: {reason}")


def _decode(pending: Pending, frame: memoryview) -> Message:
    correlation_id, position = read_response_header(frame, pending.api_key, pending.version)
    if correlation_id != pending.correlation_id:
        raise MalformedMessage(f"correlation id {correlation_id} arrived instead of {pending.correlation_id}")
    version = pending.version
    if pending.api_key is ApiKey.API_VERSIONS:
        # A broker without this version of ApiVersions answers in version 0.
        code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if code == UnsupportedVersion.code:
            version = 0
    answer, _ = pending.response_class.decoder(version)(frame, position)
    return answer
