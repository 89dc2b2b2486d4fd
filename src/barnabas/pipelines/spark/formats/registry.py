"""Schema registry client. The schema of an id never changes, so each process requests it once."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any

TIMEOUT_S = 10.0
SERVER_ERROR = 500
"""First HTTP status code that blames the server."""
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """The registry refused a request or did not answer."""


class RegistryAway(RegistryError):
    """The registry is out of reach, or cannot answer now."""


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
        kind = RegistryAway if error.code >= SERVER_ERROR else RegistryError
        raise kind(f"the schema registry answered {error.code} to {path}") from None
    except OSError as error:
        raise RegistryAway(f"the schema registry at {url} cannot be reached: {error}") from None
