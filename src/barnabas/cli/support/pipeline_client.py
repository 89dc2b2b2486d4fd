"""HTTP client of the pipeline service, from Python's standard library.

Client properties configure it: `ssl.*` as for a broker, `http.user` and `http.password`, or `http.token`.
Secrets may be references; they are resolved with each request. Redirections are not followed: one could lead
a password elsewhere. Commands of the same user find the token of a service on loopback in a file.
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

from barnabas.cli.support.exit_codes import AlreadyExists, Failure, InvalidSettings, NotFound, Unreachable
from barnabas.client.security.tls_context import TlsSettings, tls_context
from barnabas.core.errors import InvalidConfig
from barnabas.security.http.token import VARIABLE, token_for
from barnabas.security.identity.secret_references import UnresolvedSecret, resolve

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """Address and credentials of the service."""

    url: str
    tls: TlsSettings | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, properties: Mapping[str, str]) -> Service:
        """Service from client properties; INVALID_CONFIG names the problem."""
        url = (url if url.startswith(("http://", "https://")) else f"http://{url}").rstrip("/")
        user, password, token = (properties.get(f"http.{name}") for name in ("user", "password", "token"))
        if (user is None) != (password is None):
            raise InvalidConfig("http.user and http.password need each other")
        if user is not None and token is not None:
            raise InvalidConfig("http.user and http.token exclude each other")
        if user is None and token is None:
            token = token_for(url)
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
    """Send a request; returns the JSON of the answer or None. An error becomes a message and an exit code."""
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
        reason = getattr(reason, "strerror", None) or reason
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
        message += (
            "; --command-config has http.user and http.password, or http.token; a service on loopback prints"
            f" its token when it starts (here: {VARIABLE})"
        )
    return {404: NotFound, 409: AlreadyExists}.get(error.code, Failure)(message)
