"""Public keys that verify OAUTHBEARER tokens (JWKS), read at the start and again periodically.

Keys come from a file or over HTTPS. Plain HTTP is accepted from this machine only, without a proxy: an
attacker who can change the answer could let any client in. Reads run off the loop. The current keys stay in
force when a later read fails.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import urllib.request
from collections.abc import Callable, Coroutine
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.security.sasl.bearer_tokens import BearerToken, PublicKeys, TokenRules, verify
from barnabas.security.sasl.outcome import AuthenticationRefused, Reason

logger = logging.getLogger(__name__)

KEY_SET_BYTES_MAX = 1 << 20
READ_TIMEOUT_S = 10.0
ATTEMPTS_AT_START = 3
UNKNOWN_KEY_INTERVAL_MS = 10_000.0
"""Minimum interval between reads that tokens with unknown keys cause."""


def check_key_set_url(url: str) -> None:
    """INVALID_CONFIG unless the keys at this URL can be trusted."""
    try:
        is_trusted = _is_trusted(urlsplit(url))
    except ValueError:  # brackets around a host that is not an address
        is_trusted = False
    if is_trusted:
        return
    raise InvalidConfig(
        "sasl.oauthbearer.jwks.endpoint.url must be of the form https://… or file:///…; keys that come in"
        " the clear over a network verify nothing"
    )


def _is_trusted(parts: SplitResult) -> bool:
    if parts.scheme == "file":
        return bool(parts.path) and parts.netloc in ("", "localhost")
    if not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects: the operator names the location of the keys, not the server there."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(scheme: str) -> urllib.request.OpenerDirector:
    """Use the environment's proxy for HTTPS only: it cannot read TLS, but it could change plain HTTP."""
    proxies = [] if scheme == "https" else [urllib.request.ProxyHandler({})]
    return urllib.request.build_opener(_NoRedirects, *proxies)


def read_key_set(url: str) -> PublicKeys:
    """Read the keys; INVALID_CONFIG if there are none. Blocks."""
    check_key_set_url(url)
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            text = read_regular_file(unquote(parts.path), KEY_SET_BYTES_MAX + 1)
        else:
            with _opener(parts.scheme).open(url, timeout=READ_TIMEOUT_S) as answer:
                text = answer.read(KEY_SET_BYTES_MAX + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise InvalidConfig(f"the key set for OAUTHBEARER cannot be read: {error}") from None
    if len(text) > KEY_SET_BYTES_MAX:
        raise InvalidConfig(f"the key set for OAUTHBEARER is larger than {KEY_SET_BYTES_MAX} bytes")
    return PublicKeys.parse(text)


class TokenVerifier:
    """Keys of one issuer and the rules for its tokens. Call `load` before `verify`."""

    def __init__(
        self,
        url: str,
        rules: TokenRules,
        clock: Clock,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._url = url
        self._rules = rules
        self._clock = clock
        self._start = start
        self._keys = PublicKeys(())
        self._read_ms = 0.0
        self._is_reading = False

    async def load(self, backoff_ms: float) -> None:
        for attempts_left in reversed(range(ATTEMPTS_AT_START)):
            try:
                self._keys = await asyncio.to_thread(read_key_set, self._url)
            except InvalidConfig:
                if not attempts_left:
                    raise
                await asyncio.sleep(backoff_ms / 1_000)
            else:
                self._read_ms = self._clock.monotonic_ms()
                return

    def verify(self, token: str) -> BearerToken:
        try:
            return verify(token, self._keys, self._rules, self._clock.now_ms())
        except AuthenticationRefused as refusal:
            since_ms = self._clock.monotonic_ms() - self._read_ms
            if refusal.reason is Reason.BAD_TOKEN and since_ms >= UNKNOWN_KEY_INTERVAL_MS:
                self.refresh()
            raise

    def refresh(self) -> None:
        """Schedule a read of the keys."""
        if not self._is_reading:
            self._is_reading = True
            self._start(self._refresh())

    async def _refresh(self) -> None:
        try:
            self._keys = await asyncio.to_thread(read_key_set, self._url)
        except InvalidConfig as error:
            logger.warning("%s; the previous keys stay in force", error.message)
        except Exception:
            logger.exception("cannot read the key set for OAUTHBEARER; the previous keys stay in force")
        finally:
            self._read_ms = self._clock.monotonic_ms()
            self._is_reading = False
