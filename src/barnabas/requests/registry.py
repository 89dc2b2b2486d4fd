"""The row that registers an API, and the table that the dispatcher reads.

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


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key, the versions that are really implemented, and its handler."""

    key: ApiKey
    versions: range
    handle: Callable[[Any, Any], Any]
    advertised: range | None = None
    """What ApiVersions says when that must differ from `versions` for the sake of a client."""
    elements_max: int = REQUEST_ELEMENTS_MAX
    """What a request may have in all its arrays together."""
    refused: Callable[[Any, KafkaError, int], Any] | None = None
    """(request, error, version) -> the answer to a request that is refused, where that is more than an error
    code at the top of it."""
    is_between_brokers: bool = False
    """Sent by the controller or by a broker that leaves; clients have no use for it."""

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handle)

    @property
    def is_sliced(self) -> bool:
        return inspect.isgeneratorfunction(self.handle)

    @property
    def advertised_versions(self) -> range:
        return self.advertised if self.advertised is not None else self.versions

    @property
    def row(self) -> ApiVersion:
        """As ApiVersions shows it."""
        versions = self.advertised_versions
        return ApiVersion(api_key=int(self.key), min_version=versions[0], max_version=versions[-1])


class ApiTable:
    """All registered APIs by key."""

    def __init__(self, apis: Iterable[Api]) -> None:
        self._by_key: dict[int, Api] = {}
        for api in apis:
            assert api.key not in self._by_key, f"{api.key.name} is registered twice"
            self._by_key[api.key] = api

    def get(self, key: int) -> Api | None:
        return self._by_key.get(key)

    def for_clients(self) -> ApiTable:
        """Without what brokers say to each other."""
        return ApiTable(api for api in self if not api.is_between_brokers)

    def __iter__(self) -> Iterator[Api]:
        return iter(sorted(self._by_key.values(), key=lambda api: api.key))

    def advertised(self) -> list[ApiVersion]:
        return [api.row for api in self]

    def unsupported_version(self) -> ApiVersionsResponse:
        """What to say, in version 0, to who asks for ApiVersions in a version that is not served."""
        api = self._by_key.get(ApiKey.API_VERSIONS)
        return ApiVersionsResponse(
            error_code=UnsupportedVersion.code, api_keys=[] if api is None else [api.row]
        )
