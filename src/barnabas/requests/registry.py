"""API rows, and the table by which the dispatcher finds them.

A handler is a function `(request, context) -> response`. It comes in three kinds:

- A plain function returns the response. When the response has to wait (for acknowledgements, or a long poll)
  it returns None, and the part that completes the request calls `context.respond`. No coroutine is suspended
  meanwhile; the request waits in the purgatory.
- A generator function does the same where a request may have many elements. It yields between elements and
  continues in later turns, while the connection is held (see `time_slicing`).
- An `async def` calls the coordination store, which may be slow. The connection is held until it is done, so
  that requests of one connection see each other's effects in order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas.core.errors import KafkaError, UnsupportedVersion
from barnabas.core.integers import INT_MAX
from barnabas.core.limits import PLAIN_REQUEST_BYTES_MAX, REQUEST_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.requests.served_versions import BETWEEN_BROKERS, SERVED_VERSIONS

_UNLIMITED_FRAMES: Final = frozenset({ApiKey.PRODUCE, *BETWEEN_BROKERS})


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and its handler."""

    key: ApiKey
    handle: Callable[[Any, Any], Any]
    elements_max: int = REQUEST_ELEMENTS_MAX
    """Limit of the elements in all arrays of a request together."""
    refused: Callable[[Any, KafkaError, int], Any] | None = None
    """(request, error, version) -> the response to a refused request, where an error code at the top is not
    enough. A generator function if every element gets the error."""

    @property
    def versions(self) -> range:
        """Versions that the broker serves."""
        return SERVED_VERSIONS[self.key]

    @property
    def is_between_brokers(self) -> bool:
        return self.key in BETWEEN_BROKERS

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handle)

    @property
    def is_sliced(self) -> bool:
        return inspect.isgeneratorfunction(self.handle)


def frame_bytes_max_of(api_key: int) -> int:
    """Largest request of an API. The API key arrives first, so the limit is known before the rest is
    received."""
    return INT_MAX if api_key in _UNLIMITED_FRAMES else PLAIN_REQUEST_BYTES_MAX


class ApiTable:
    """Served APIs. `find` looks up a handler when its first request arrives."""

    def __init__(self, keys: Iterable[ApiKey], find: Callable[[ApiKey], Api]) -> None:
        self._keys = {int(key): key for key in sorted(keys)}
        self._find = find

    def get(self, key: int, version: int) -> Api | None:
        """None, if the API or version is not served."""
        served = self._keys.get(key)
        if served is None or version not in SERVED_VERSIONS[served]:
            return None
        return self._find(served)

    def for_clients(self) -> ApiTable:
        """The table without the APIs between brokers."""
        return ApiTable((key for key in self._keys.values() if key not in BETWEEN_BROKERS), self._find)

    def __iter__(self) -> Iterator[Api]:
        """All APIs in the order of their keys; imports their handlers."""
        return map(self._find, self._keys.values())

    def advertised(self) -> list[ApiVersion]:
        return [_row(key) for key in self._keys.values()]

    def unsupported_version(self) -> ApiVersionsResponse:
        """Version 0 response to an ApiVersions request in a version that is not served."""
        return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[_row(ApiKey.API_VERSIONS)])


def _row(key: ApiKey) -> ApiVersion:
    """One API as ApiVersions shows it."""
    versions = SERVED_VERSIONS[key]
    return ApiVersion(api_key=int(key), min_version=versions[0], max_version=versions[-1])
