"""Messages of the protocol, one file per API: its request, its response, and the structs inside them.

This package imports none of them: `request_class` and `response_class` find a message by its API key.
"""

from __future__ import annotations

import importlib

from barnabas.protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from barnabas.protocol.schema.message import Message


def request_class(key: ApiKey) -> type[Message]:
    """The class of the API's requests."""
    return _message_class(key, "Request")


def response_class(key: ApiKey) -> type[Message]:
    """The class of the API's responses."""
    return _message_class(key, "Response")


def _message_class(key: ApiKey, suffix: str) -> type[Message]:
    if key not in FLEXIBLE_SINCE:
        raise LookupError(f"{key.name} has no messages in this package")
    module = importlib.import_module(f"barnabas.protocol.messages.{key.name.lower()}")
    found: type[Message] = getattr(module, key.camel_name + suffix)
    return found
