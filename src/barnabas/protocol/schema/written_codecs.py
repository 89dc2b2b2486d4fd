"""Lookup of codecs that a compiled wheel carries as modules (`protocol.codecs`).

A source tree has none: a codec is compiled from its declaration when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from barnabas.protocol.schema.declarations import MessageType, Pace

CODECS = "barnabas.protocol.codecs"


def codec_name(verb: str, cls: MessageType, version: int, pace: Pace) -> str:
    """Name of a codec, in a module or compiled at run time: `decode_ProduceRequest_v9_bounded`."""
    return f"{verb}_{cls.__name__}_v{version}_{pace.name.lower()}"


def written_codec(verb: str, cls: MessageType, version: int, pace: Pace) -> Callable[..., Any] | None:
    """The codec from the compiled wheel, if there is one."""
    module = f"{CODECS}.{cls.__module__.rpartition('.')[2]}"
    try:
        return getattr(import_module(module), codec_name(verb, cls, version, pace), None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None
