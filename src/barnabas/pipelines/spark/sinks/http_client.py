"""HTTP requests of a task: one kept connection, retries with growing pauses, redirects within bounds.

An answer is one of three things. 2xx: the receiver has the body. 4xx: it refuses this body, and would again.
Everything else, and no answer at all, may pass. The request is repeated after a pause that doubles, with
jitter, or for as long as `Retry-After` says. 408, 425 and 429 ask for a repetition too. 401, 403 and 407
refuse the sender, not the body.

A redirect that keeps method and body (307, 308) is followed to the same origin, and to the hosts that the
spec allows; credentials go to the own origin alone. Other redirects would turn a POST into a GET, so they
are a failure. An answer counts by its status: of its body a bounded part is read, for a bounded time.
"""

from __future__ import annotations

import http.client
import random
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from barnabas.core.backoff import Backoff
from barnabas.core.clock import SystemClock
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed
from barnabas.pipelines.spec.options.http import is_secret_header

REDIRECTS_MAX = 5
ANSWER_BYTES_MAX = 64 * 1024
"""A longer answer is not read to its end; its connection is closed."""
SHOWN_CHARACTERS = 200
_REPEATED = frozenset((408, 425, 429))
_OF_SENDER = frozenset((401, 403, 407))
_KEEPING = frozenset((307, 308))


class Refusal(NamedTuple):
    """Answer that refuses a body."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Receiver:
    """Address and settings of the receiver; picklable, because tasks send."""

    method: str
    headers: Mapping[str, str] = field(repr=False)
    timeout_s: float
    retries: int
    backoff_s: float
    backoff_s_max: float
    redirect_hosts: tuple[str, ...] = ()
    ca_file: str | None = None
    secret_headers: frozenset[str] = frozenset()
    """Lower-case names of headers that only the own origin receives, beside those with a telling name."""


class HttpClient:
    """Requests one after the other. Not for several threads."""

    def __init__(self, receiver: Receiver, sleep: Callable[[float], None] = time.sleep) -> None:
        self._receiver = receiver
        self._sleep = sleep
        self._random = random.Random()  # noqa: S311 - jitter
        self._connection: http.client.HTTPConnection | None = None
        self._origin: tuple[str, str] | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._origin = None

    def send(
        self, url: str, body: bytes | None, headers: Mapping[str, str], method: str = ""
    ) -> Refusal | None:
        """Send until the receiver has the body or refuses it. Raises Away or PipelineFailed."""
        method = method or self._receiver.method
        for attempt in range(self._receiver.retries + 1):
            try:
                answer = self._follow(method, url, body, {**self._receiver.headers, **headers})
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if attempt == self._receiver.retries:
                    raise Away(f"{_shown(url)} does not answer: {error or type(error).__name__}") from None
                self._pause(attempt, None)
                continue
            if answer.is_taken:
                return None
            if answer.status in _OF_SENDER:
                raise PipelineFailed(f"{_shown(url)} refuses the sender: {answer.said}")
            if answer.is_refusal:
                return Refusal(answer.status, answer.said)
            if attempt == self._receiver.retries:
                raise PipelineFailed(
                    f"{_shown(url)} cannot serve after {attempt + 1} attempts: {answer.said}"
                )
            self._pause(attempt, answer.retry_after)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int, retry_after: str | None) -> None:
        receiver, longest = self._receiver, self._receiver.backoff_s_max
        asked = None if retry_after is None else _seconds(retry_after)
        doubled = Backoff(1_000 * receiver.backoff_s, 1_000 * longest).after_ms(attempt) / 1_000
        jittered = doubled * (0.5 + self._random.random() / 2)
        self._sleep(jittered if asked is None else min(max(asked, jittered), longest))

    def _follow(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> _Answer:
        home = _origin(urlsplit(url))
        for _ in range(REDIRECTS_MAX + 1):
            split = urlsplit(url)
            sent = headers if _origin(split) == home else self._without_secrets(headers)
            answer = self._exchange(method, split, body, sent)
            if not 300 <= answer.status < 400:
                return answer
            try:
                target = urljoin(url, answer.location or "")
                _ = urlsplit(target).port
            except ValueError:
                raise PipelineFailed(f"{_shown(url)} redirects to an unusable location") from None
            if answer.status not in _KEEPING or not answer.location:
                raise PipelineFailed(
                    f"{_shown(url)} redirects by {answer.status}: write its target, {_shown(target)}"
                )
            if not self._is_allowed(urlsplit(target), home):
                raise PipelineFailed(
                    f"{_shown(url)} redirects to {_shown(target)}, which redirect_hosts does not allow"
                )
            url = target
        raise PipelineFailed(f"{_shown(url)} redirects more than {REDIRECTS_MAX} times")

    def _without_secrets(self, headers: Mapping[str, str]) -> dict[str, str]:
        secret = self._receiver.secret_headers
        return {
            name: text
            for name, text in headers.items()
            if name.lower() not in secret and not is_secret_header(name)
        }

    def _is_allowed(self, target: SplitResult, home: tuple[str, str]) -> bool:
        is_downgrade = home[0] == "https" and target.scheme != "https"
        if target.scheme not in ("http", "https") or is_downgrade:
            return False
        return _origin(target) == home or (target.hostname or "") in self._receiver.redirect_hosts

    def _exchange(
        self, method: str, split: SplitResult, body: bytes | None, headers: Mapping[str, str]
    ) -> _Answer:
        connection = self._connected(_origin(split))
        path = (split.path or "/") + (f"?{split.query}" if split.query else "")
        connection.request(method, path, body, dict(headers))
        with connection.getresponse() as response:
            text = self._read(response)[: SHOWN_CHARACTERS * 4].decode(errors="replace")
            answer = _Answer(
                response.status,
                f"{response.status} {response.reason}: {text}",
                response.getheader("Location"),
                response.getheader("Retry-After"),
            )
            is_whole = response.isclosed() or response.length == 0
        if not is_whole:
            self.close()
        return answer

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """The bounded part of an answer's body that arrives in time. Its status counts without the body."""
        clock, read = SystemClock(), b""
        end_ms = clock.monotonic_ms() + self._receiver.timeout_s * 1_000
        with suppress(OSError, http.client.HTTPException, ValueError):
            while len(read) < ANSWER_BYTES_MAX and clock.monotonic_ms() < end_ms:
                part = response.read1(ANSWER_BYTES_MAX - len(read))
                read += part
                if not part or response.length == 0:
                    break
        return read

    def _connected(self, origin: tuple[str, str]) -> http.client.HTTPConnection:
        if self._connection is None or self._origin != origin:
            self.close()
            scheme, place = origin
            timeout = self._receiver.timeout_s
            if scheme == "https":
                context = ssl.create_default_context(cafile=self._receiver.ca_file)
                self._connection = http.client.HTTPSConnection(place, timeout=timeout, context=context)
            else:
                self._connection = http.client.HTTPConnection(place, timeout=timeout)
            self._origin = origin
        return self._connection


class _Answer(NamedTuple):
    status: int
    text: str
    location: str | None
    retry_after: str | None

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        return 400 <= self.status < 500 and self.status not in _REPEATED

    @property
    def said(self) -> str:
        return " ".join(self.text.split())[:SHOWN_CHARACTERS]


def _origin(split: SplitResult) -> tuple[str, str]:
    return split.scheme, split.netloc.rpartition("@")[2]


def _seconds(retry_after: str) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    parsed = parsedate_tz(retry_after)
    try:
        return None if parsed is None else mktime_tz(parsed) - SystemClock().now_ms() / 1_000
    except (ValueError, OverflowError):  # a date that no calendar has
        return None


def _shown(url: str) -> str:
    """Address without credentials and query, which may hold a token."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
