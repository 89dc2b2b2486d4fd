"""What a handler is, and the table by which the dispatcher finds it.

A handler is a function `(request, context) -> response`. It comes in three kinds:

- A plain function answers at once: it returns the response. When the answer has to wait (an
  acknowledgement by replicas, a long poll) it returns None and whoever finishes the work
  calls `context.respond`. No coroutine is suspended meanwhile; waiting lives in the purgatory.
- A generator function does the same where a request may have much to do: it yields between
  elements, and what it has not done within its share of a turn is done in later ones, while
  the connection is held (see `slices`).
- An `async def` talks to the coordination store, which may be far away. The connection is
  held until it is done, so that requests of one connection see each other's effects in order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.core.errors import KafkaError, UnsupportedVersion
from barnabas.core.limits import REQUEST_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.requests.served_versions import BETWEEN_BROKERS, SERVED_VERSIONS


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and its handler."""

    key: ApiKey
    handle: Callable[[Any, Any], Any]
    elements_max: int = REQUEST_ELEMENTS_MAX
    """What a request may have in all its arrays together."""
    refused: Callable[[Any, KafkaError, int], Any] | None = None
    """(request, error, version) -> the answer to a request that is refused, where that is more than an error
    code at the top of it."""

    @property
    def versions(self) -> range:
        """As the broker serves it."""
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


class ApiTable:
    """The APIs that are served. Their handlers are found (`find`) when the first request for them comes."""

    def __init__(self, keys: Iterable[ApiKey], find: Callable[[ApiKey], Api]) -> None:
        self._keys = {int(key): key for key in sorted(keys)}
        self._find = find

    def get(self, key: int, version: int) -> Api | None:
        """None, if that is not served."""
        served = self._keys.get(key)
        if served is None or version not in SERVED_VERSIONS[served]:
            return None
        return self._find(served)

    def for_clients(self) -> ApiTable:
        """Without what brokers say to each other."""
        return ApiTable((key for key in self._keys.values() if key not in BETWEEN_BROKERS), self._find)

    def __iter__(self) -> Iterator[Api]:
        """In the order of their keys, with their handlers."""
        return map(self._find, self._keys.values())

    def advertised(self) -> list[ApiVersion]:
        return [_row(key) for key in self._keys.values()]

    def unsupported_version(self) -> ApiVersionsResponse:
        """What to say, in version 0, to who asks for ApiVersions in a version that is not served."""
        return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[_row(ApiKey.API_VERSIONS)])


def _row(key: ApiKey) -> ApiVersion:
    """As ApiVersions shows it."""
    versions = SERVED_VERSIONS[key]
    return ApiVersion(api_key=int(key), min_version=versions[0], max_version=versions[-1])
