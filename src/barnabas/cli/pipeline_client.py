"""Asks the pipeline service over HTTP, with what Python has on board.

Client properties say how: `ssl.*` as for a broker, `http.user` and `http.password`, or `http.token`. Secrets
may be references; they are followed when something is asked. A redirection is not: it could lead a password
elsewhere.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.cli.exits import AlreadyExists, Failure, InvalidSettings, NotFound, Unreachable
from barnabas.client.tls_context import TlsSettings, tls_context
from barnabas.core.errors import InvalidConfig
from barnabas.security.secret_references import UnresolvedSecret, resolve

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """Where the service is, and how one gets in."""

    url: str
    tls: TlsSettings | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, properties: Mapping[str, str]) -> Service:
        """INVALID_CONFIG says what is wrong with the properties."""
        url = (url if url.startswith(("http://", "https://")) else f"http://{url}").rstrip("/")
        user, password, token = (properties.get(f"http.{name}") for name in ("user", "password", "token"))
        if (user is None) != (password is None):
            raise InvalidConfig("http.user and http.password belong together")
        if user is not None and token is not None:
            raise InvalidConfig("http.user and http.token exclude each other")
        tls = TlsSettings.parse(properties) if url.startswith("https://") else None
        return cls(url, tls, user, password, token)

    def headers(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {resolve(self.token)}"}
        if self.user is None:
            return {}
        shown = f"{resolve(self.user)}:{resolve(self.password)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(shown).decode()}"}

    def opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirection()]
        if self.tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls_context(self.tls)))
        return urllib.request.build_opener(*handlers)


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def ask(service: Service, method: str, path: str, body: Any = None) -> Any:
    """The answer's JSON, or None where there is none; an error becomes a line and an exit code."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme is set above
            service.url + path,
            data=data,
            method=method,
            headers={"Content-Type": "application/json", **service.headers()},
        )
        with service.opener().open(request, timeout=TIMEOUT_S) as answer:
            text = answer.read()
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None
    except UnresolvedSecret as error:
        raise InvalidSettings(f"--command-config: {error}") from None
    except urllib.error.HTTPError as error:
        raise _failure(error) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(
            f"no pipeline service at {service.url}: {reason}; start one with 'barnabas pipeline serve'"
        ) from None
    return json.loads(text) if text else None


def path_of(name: str, *rest: str) -> str:
    return "/".join(("/connectors", urllib.parse.quote(name, safe=""), *rest))


def _failure(error: urllib.error.HTTPError) -> Failure:
    try:
        message = str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the service answered {error.code}"
    if error.code == 401:
        message += "; --command-config has http.user and http.password, or http.token"
    return {404: NotFound, 409: AlreadyExists}.get(error.code, Failure)(message)
