"""Where codecs lie that were written out as modules, one for each API: `codecs.produce`, `codecs.fetch` …

In the source there are none: an encoder or decoder is written and compiled when it is first asked for,
which keeps the start short. A wheel that is built for one platform has here what brokers run most, by the
same writers, compiled to machine code (see `writing`; `make codecs` shows what it would have).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from barnabas.protocol.declarations import MessageType, Pace


def codec_name(verb: str, cls: MessageType, version: int, pace: Pace) -> str:
    """What a codec is called, wherever it is: `decode_ProduceRequest_v9_bounded`."""
    return f"{verb}_{cls.__name__}_v{version}_{pace.name.lower()}"


def written_codec(verb: str, cls: MessageType, version: int, pace: Pace) -> Callable[..., Any] | None:
    """The codec that was written out when this package was built, if it was."""
    module = f"{__name__}.{cls.__module__.rpartition('.')[2]}"
    try:
        return getattr(import_module(module), codec_name(verb, cls, version, pace), None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None
