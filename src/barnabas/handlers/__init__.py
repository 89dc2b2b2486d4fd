"""What the broker answers: one file per API, no sockets.

Each file opens with the API's key, its versions and its gaps, and ends with its `Api`. What is served, in
which versions, is listed in `requests.served_versions`, and a file is found by the name of its API: it is
imported when the first request comes, or soon after the start (`node.main`), which need not wait for all of
them.

Where the coordination store is this broker's own, nobody else gives orders, and only what is for clients is
served.
"""

from __future__ import annotations

import importlib

from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.registry import Api, ApiTable
from barnabas.requests.served_versions import SERVED_VERSIONS


def find_api(key: ApiKey) -> Api:
    """What stands at the end of the file that has the API's name."""
    found: Api = getattr(importlib.import_module(f"{__name__}.{key.name.lower()}"), key.name)
    return found


APIS = ApiTable(SERVED_VERSIONS, find_api)
"""The table that the dispatcher reads."""
