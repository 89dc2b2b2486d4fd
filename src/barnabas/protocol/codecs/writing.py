"""Codecs written to modules ahead of time: the source that `decoding` and `encoding` generate at first use.

    python -m barnabas.protocol.codecs.writing DIRECTORY

For the hottest APIs, in the versions of today's clients, the modules hold the decoder of requests and the
encoder of responses, both bounded (`declarations.Pace`). The newest version also has the client's half:
followers and Barnabas' own client use it. All other codecs are compiled at first use, because a version takes
the C compiler some seconds. The modules are for that compiler and for readers, and are not kept in the
repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import Struct
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.codegen import Source
from barnabas.protocol.schema.declarations import Pace
from barnabas.protocol.schema.decoding import write_decoder
from barnabas.protocol.schema.encoding import write_encoder

HOT = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11}
"""First version that is written out, by API."""

HEAD = '''"""{api}: requests decoded and responses encoded, v{first}-{last}, and the reverse in v{last}.

Written by `barnabas.protocol.codecs.writing` from the declaration in `messages.{module}`: edit that.
"""
# ruff: noqa

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.protocol.schema.declarations import Part
'''

IMPORTS = {
    "StructError": "from struct import error as StructError",
    "ZERO_UUID": "from barnabas.core.ids import ZERO_UUID",
    "new": "new: Final = object.__new__",
    "new_bytes": "new_bytes: Final = bytes.__new__",
    "pack": "from struct import pack",
    "unpack_from": "from struct import unpack_from",
}
"""Import lines for names whose value does not reveal their module."""


def module_text(key: ApiKey) -> str:
    """The module of one API: its imports, then a function for each version and direction."""
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
    """The line that defines `name` in a module."""
    if name in IMPORTS:
        return IMPORTS[name]
    layout = getattr(value, "__self__", None)
    if isinstance(layout, Struct):
        return f"{name}: Final = Struct({layout.format!r}).{value.__name__}"
    return f"from {value.__module__} import {name}"


def write_modules(directory: Path) -> list[Path]:
    """Write every module into `directory`; return their paths."""
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
