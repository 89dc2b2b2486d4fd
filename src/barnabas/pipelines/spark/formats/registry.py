"""A small client of a schema registry, and the framing by which records name their schema.

A framed record is a zero byte, four bytes of schema id, and the payload. Schemas of an id never
change, so each process asks for one once.
"""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any

MAGIC = 0
HEADER = struct.Struct(">BI")
TIMEOUT_S = 10.0
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """The registry said no, or nothing."""


class UnframedRecord(Exception):
    """The bytes do not begin as the registry's clients begin them."""


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema's id, and the payload."""
    if len(value) < HEADER.size or value[0] != MAGIC:
        raise UnframedRecord("the value does not begin with a zero byte and a schema id")
    return HEADER.unpack_from(value)[1], value[HEADER.size :]


def frame(schema_id: int, payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, schema_id) + payload


@lru_cache(maxsize=1024)
def schema_by_id(url: str, schema_id: int) -> str:
    return str(_ask(url, f"/schemas/ids/{schema_id}")["schema"])


def latest_schema(url: str, subject: str) -> tuple[int, str]:
    found = _ask(url, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
    return int(found["id"]), str(found["schema"])


def register(url: str, subject: str, schema: str, kind: str = "AVRO") -> int:
    body: dict[str, str] = {"schema": schema}
    if kind != "AVRO":
        body["schemaType"] = kind
    return int(_ask(url, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body)["id"])


def _ask(url: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise RegistryError(
            f"{url!r} is not the address of a schema registry; expected http://… or https://…"
        )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        url.rstrip("/") + path, data=data, headers={"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise RegistryError(f"the schema registry answered {error.code} to {path}") from None
    except OSError as error:
        raise RegistryError(f"the schema registry at {url} cannot be reached: {error}") from None
