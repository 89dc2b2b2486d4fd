"""TLS handshakes in progress: from an accepted socket to a connection, or to the reason of a failure.

A handshake proceeds whenever its socket is ready, in steps that never block. A step costs up to a few
milliseconds of signing, so all steps of one turn share `HANDSHAKE_TURN_MS_MAX`. A thousand clients that
connect at once delay each other, not the connections that are being served.

Their number is bounded. One above the limit ends the oldest: an honest client is done in milliseconds, so the
oldest only occupies the slot. All have the same time to finish.

No object is made for a client before its first byte, which also shows whether it speaks TLS at all.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from barnabas.core.clock import Clock
from barnabas.core.limits import HANDSHAKE_MS_MAX, HANDSHAKE_TURN_MS_MAX, HANDSHAKES_MAX
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.network.counters import HandshakeFailure, NetworkCounters
from barnabas.network.listener import Listener
from barnabas.security.identity.principal import KafkaPrincipal

if TYPE_CHECKING:  # contexts need a library that a broker without TLS does not import
    from barnabas.security.tls.context import ListenerContext

_HANDSHAKE_RECORD = 0x16
"""First byte of a TLS client."""

DISCARDED_READS_MAX = 16
DISCARDED_BYTES = 4_096

_NOTHING_AGREED = frozenset({"NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"})


class ContextSource(Protocol):
    """Source of a listener's TLS context, which may change between handshakes."""

    @property
    def current(self) -> ListenerContext: ...


class Handshake:
    __slots__ = ("began_ms", "is_writing", "listener", "made_by", "peer_host", "peer_port", "sock")

    def __init__(
        self, listener: Listener, sock: socket.socket, peer_host: str, peer_port: int, began_ms: float
    ) -> None:
        self.listener = listener
        self.sock = sock
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.began_ms = began_ms
        self.is_writing = False
        self.made_by: ListenerContext | None = None


class HandshakeOwner(Protocol):
    """The server."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: NetworkCounters
    limited_log: RateLimitedLogger

    def take_over(self, handshake: Handshake, tls: ssl.SSLSocket, principal: KafkaPrincipal) -> None:
        """The handshake succeeded, and authenticated the client as `principal`."""
        ...

    def forget_handshake(self, handshake: Handshake) -> None:
        """The handshake failed."""
        ...


class Handshakes:
    def __init__(self, owner: HandshakeOwner) -> None:
        self._owner = owner
        self._under_way: dict[Handshake, ContextSource] = {}
        self._due: dict[Handshake, None] = {}
        """Handshakes whose socket is ready, in that order."""

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, handshake: Handshake, contexts: ContextSource) -> None:
        if len(self._under_way) >= HANDSHAKES_MAX:
            self._fail(next(iter(self._under_way)), HandshakeFailure.CROWDED_OUT)
        self._under_way[handshake] = contexts
        self._owner.loop.add_reader(handshake.sock.fileno(), self._on_ready, handshake)

    def sweep(self, now_ms: float) -> None:
        """End handshakes whose deadline has passed."""
        for handshake in tuple(self._under_way):
            if now_ms - handshake.began_ms <= HANDSHAKE_MS_MAX:
                return  # the others began later
            with sweeping("the deadline of a handshake", handshake.peer_host):
                self._fail(handshake, HandshakeFailure.TOO_SLOW)

    def close(self) -> None:
        for handshake in tuple(self._under_way):
            with sweeping("the end of a handshake", handshake.peer_host):
                self._leave(handshake)
                handshake.sock.close()
                self._owner.forget_handshake(handshake)

    def _on_ready(self, handshake: Handshake) -> None:
        if not self._due:
            self._owner.loop.call_soon(self._take_steps)
        self._due[handshake] = None

    def _take_steps(self) -> None:
        until_ms = self._owner.clock.monotonic_ms() + HANDSHAKE_TURN_MS_MAX
        while self._due:
            handshake = next(iter(self._due))
            del self._due[handshake]
            with sweeping("a step of a handshake", handshake.peer_host):
                try:
                    self._take_step(handshake)
                except Exception as error:  # noqa: BLE001 - a bug costs this one client
                    self._owner.limited_log.error("handshake", "a handshake broke off", cause=error)
                    self._fail(handshake, HandshakeFailure.OTHER)
            if self._owner.clock.monotonic_ms() > until_ms:
                break
        if self._due:
            self._owner.loop.call_soon(self._take_steps)

    def _take_step(self, handshake: Handshake) -> None:
        sock = handshake.sock
        if handshake not in self._under_way:
            return
        try:
            if not isinstance(sock, ssl.SSLSocket):
                if (reason := _refuse_at_once(sock)) is not None:
                    self._fail(handshake, reason)
                    return
                sock = self._wrap(handshake, sock)
            sock.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            self._await_writing(handshake, wanted=False)
        except ssl.SSLWantWriteError:
            self._await_writing(handshake, wanted=True)
        except OSError as error:
            self._fail(handshake, _reason_of(error), error)
        else:
            self._finish(handshake, sock)

    def _wrap(self, handshake: Handshake, sock: socket.socket) -> ssl.SSLSocket:
        """OSError if the client is gone. The descriptor is closed then, so the loop must not keep it."""
        made_by = handshake.made_by = self._under_way[handshake].current
        loop, descriptor = self._owner.loop, sock.fileno()
        loop.remove_reader(descriptor)
        tls = made_by.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        handshake.sock = tls  # the new object owns the descriptor
        loop.add_reader(descriptor, self._on_ready, handshake)
        return tls

    def _await_writing(self, handshake: Handshake, *, wanted: bool) -> None:
        if handshake.is_writing != wanted:
            handshake.is_writing = wanted
            descriptor = handshake.sock.fileno()
            if wanted:
                self._owner.loop.add_writer(descriptor, self._on_ready, handshake)
            else:
                self._owner.loop.remove_writer(descriptor)

    def _finish(self, handshake: Handshake, tls: ssl.SSLSocket) -> None:
        assert handshake.made_by is not None, "a handshake that ended has begun"
        principal = handshake.made_by.principal(tls.getpeercert(binary_form=True))
        if principal is None:
            self._fail(handshake, HandshakeFailure.UNKNOWN_NAME)
            return
        self._leave(handshake)
        self._owner.counters.handshakes.value += 1
        self._owner.take_over(handshake, tls, principal)

    def _fail(self, handshake: Handshake, reason: HandshakeFailure, error: OSError | None = None) -> None:
        if handshake not in self._under_way:
            return
        self._leave(handshake)
        self._owner.counters.handshake_failures[reason].value += 1
        self._owner.limited_log.warn(
            f"handshake {reason}",
            "TLS handshake of %s:%d on listener %s failed: %s%s",
            handshake.peer_host,
            handshake.peer_port,
            handshake.listener.name,
            reason.in_words,
            "" if error is None else f" ({_detail_of(error)})",
        )
        if reason is HandshakeFailure.NOT_TLS:
            _take_unread(handshake.sock)
        handshake.sock.close()
        self._owner.forget_handshake(handshake)

    def _leave(self, handshake: Handshake) -> None:
        self._due.pop(handshake, None)
        del self._under_way[handshake]
        descriptor = handshake.sock.fileno()
        if descriptor < 0:
            return  # it ended while TLS took over the socket, which the loop no longer polls
        self._owner.loop.remove_reader(descriptor)
        if handshake.is_writing:
            self._owner.loop.remove_writer(descriptor)


def _refuse_at_once(sock: socket.socket) -> HandshakeFailure | None:
    """Failure by the first byte, which may be missing."""
    first = sock.recv(1, socket.MSG_PEEK)
    if not first:
        return HandshakeFailure.GONE
    return None if first[0] == _HANDSHAKE_RECORD else HandshakeFailure.NOT_TLS


def _take_unread(sock: socket.socket) -> None:
    """Closing a socket with unread input resets it, and the client would see no orderly close."""
    with suppress(OSError):
        for _ in range(DISCARDED_READS_MAX):
            if not sock.recv(DISCARDED_BYTES):
                return


def _reason_of(error: OSError) -> HandshakeFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailure.BAD_CERTIFICATE
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return HandshakeFailure.GONE
    if error.errno == errno.ENOTCONN:  # its input from before the close is not read
        return HandshakeFailure.GONE
    reason = error.reason or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return HandshakeFailure.NO_CERTIFICATE
    if "ALERT" in reason:
        return HandshakeFailure.REFUSED_BY_PEER
    return HandshakeFailure.NOTHING_AGREED if reason in _NOTHING_AGREED else HandshakeFailure.OTHER


def _detail_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or type(error).__name__
