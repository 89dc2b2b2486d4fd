"""Kafka API handlers: one file per API, no sockets.

Each file opens with the API's key, its versions and its gaps, and ends with its `Api` row. The dispatcher
finds a file by the name of its API. The file is imported with the first request for it, or soon after the
start (`node.main`). So the ready line does not wait for all of them.

Where the coordination store is the broker's own, no other controller exists, and only the APIs for clients
are served.
"""

from __future__ import annotations

import importlib

from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.registry import Api, ApiTable
from barnabas.requests.served_versions import SERVED_VERSIONS


def find_api(key: ApiKey) -> Api:
    """The `Api` row at the end of the file that has the API's name."""
    found: Api = getattr(importlib.import_module(f"{__name__}.{key.name.lower()}"), key.name)
    return found


APIS = ApiTable(SERVED_VERSIONS, find_api)
"""Served APIs, as the dispatcher looks them up."""
