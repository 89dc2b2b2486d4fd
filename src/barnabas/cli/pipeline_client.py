"""Asks the pipeline service over HTTP, with what Python has on board."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from barnabas.cli.exits import AlreadyExists, Failure, NotFound, Unreachable

TIMEOUT_S = 60.0


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """The answer's JSON, or None where there is none; an error becomes a line and an exit code."""
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is set above
        url.rstrip("/") + path, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise _failure(error) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(
            f"no pipeline service at {url}: {reason}; start one with 'barnabas pipeline serve'"
        ) from None
    return json.loads(text) if text else None


def path_of(name: str, *rest: str) -> str:
    return "/".join(("/connectors", urllib.parse.quote(name, safe=""), *rest))


def _failure(error: urllib.error.HTTPError) -> Failure:
    try:
        message = str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the service answered {error.code}"
    return {404: NotFound, 409: AlreadyExists}.get(error.code, Failure)(message)
