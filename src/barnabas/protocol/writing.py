"""Codecs written out as modules: what `decoding` and `encoding` make at first use, made beforehand.

    python -m barnabas.protocol.writing DIRECTORY

Of the APIs that brokers are asked most, the versions that clients of today speak have the decoder of their
requests and the encoder of their answers, both bounded (`declarations.Pace`). The newest has also what asks:
followers speak it, and our own client does. Everything else, the sliced kinds above all, is left to the first
use: a version takes the C compiler some seconds. The modules are for that compiler and for readers, and are
kept nowhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import Struct
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codegen import Source
from barnabas.protocol.declarations import Pace
from barnabas.protocol.decoding import write_decoder
from barnabas.protocol.encoding import write_encoder
from barnabas.protocol.messages import request_class, response_class

HOT = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11}
"""By the first version that is written out."""

HEAD = '''"""{api}: requests read and answers written, v{first}-{last}, and the other way round in v{last}.

Written by `barnabas.protocol.writing` from the declaration in `messages.{module}`: change that.
"""
# ruff: noqa

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.protocol.declarations import Part
'''

IMPORTS = {
    "StructError": "from struct import error as StructError",
    "ZERO_UUID": "from barnabas.core.ids import ZERO_UUID",
    "new": "new: Final = object.__new__",
    "new_bytes": "new_bytes: Final = bytes.__new__",
    "pack": "from struct import pack",
    "unpack_from": "from struct import unpack_from",
}
"""Of the names that do not know where they are from."""


def module_text(key: ApiKey) -> str:
    """The module of one API: what it refers to, then a function for each version and direction."""
    request, response = request_class(key), response_class(key)
    versions = [version for version in request.supported_versions() if version >= HOT[key]]
    sources: list[Source] = []
    for version in versions:
        sources.append(write_decoder(request, version, Pace.BOUNDED))
        sources.append(write_encoder(response, version, Pace.BOUNDED))
    sources.append(write_encoder(request, versions[-1], Pace.WHOLE))
    sources.append(write_decoder(response, versions[-1], Pace.WHOLE))
    names: dict[str, Any] = {}
    for source in sources:
        names |= source.names
    body = "\n\n".join(source.text for source in sources)
    head = HEAD.format(api=key.camel_name, first=versions[0], last=versions[-1], module=key.name.lower())
    used = sorted(_where_from(name, value) for name, value in names.items())
    return head + "\n".join(used) + "\n\n\n" + body


def _where_from(name: str, value: Any) -> str:
    """The line that makes `name` known to a module."""
    if name in IMPORTS:
        return IMPORTS[name]
    layout = getattr(value, "__self__", None)
    if isinstance(layout, Struct):
        return f"{name}: Final = Struct({layout.format!r}).{value.__name__}"
    return f"from {value.__module__} import {name}"


def write_modules(directory: Path) -> list[Path]:
    """Write every module into `directory`; returns their files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for key in HOT:
        file = directory / f"{key.name.lower()}.py"
        file.write_text(module_text(key))
        files.append(file)
    return files


if __name__ == "__main__":
    for written in write_modules(Path(sys.argv[1])):
        sys.stdout.write(f"{written}\n")
