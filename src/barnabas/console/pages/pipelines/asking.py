"""Questions to the pipeline service, whose REST interface is Kafka Connect's."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote

from barnabas.console.web.context import Context, Refused
from barnabas.security.http.token import token_for

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """A redirection could lead the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirection())


async def ask(ctx: Context, method: str, path: str, given: object = None) -> Any:
    """Ask the pipeline service; `given` is what the request says. Refused says what it answered."""
    url = ctx.console.settings.pipelines_url
    if url is None:
        raise Refused("this console knows no pipeline service: start it with --pipelines URL", 404)
    return await asyncio.to_thread(_ask, url, method, path, given)


def _ask(url: str, method: str, path: str, given: object) -> Any:
    base = (url if url.startswith(("http://", "https://")) else f"http://{url}").rstrip("/")
    token = token_for(base)
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None
    if given is not None:
        data = json.dumps(given).encode()
        headers["content-type"] = "application/json"
    request = urllib.request.Request(  # noqa: S310 - the operator's
        base + path, data, headers, method=method
    )
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        raise Refused(f"the pipeline service: {_message(error)}", error.code) from None
    except OSError as error:
        raise Refused(f"the pipeline service at {base} does not answer: {error}", 503) from None
    try:
        return json.loads(body) if body else None
    except ValueError:
        raise Refused("the pipeline service answered with something that is not JSON", 502) from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(ANSWER_BYTES_MAX))["message"])
    except (ValueError, KeyError, TypeError):
        return f"answer {error.code}"


def path_of(name: str, rest: str = "") -> str:
    """Path of a pipeline at the service."""
    return f"/connectors/{quote(name, safe='')}{rest}"
