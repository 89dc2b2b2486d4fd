"""A connection of the fuzzer: frames are sent without waiting, answers are taken as they come."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import Self

from tests.support import wire

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class Closed(Exception):
    """The broker has closed the connection."""


class Connection:
    def __init__(self, port: int, user: str, timeout_s: float = 10.0) -> None:
        self.user = user
        self.sent_bytes = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._timeout_s = timeout_s
        self.ask_raw(SASL_HANDSHAKE, 1, wire.string("PLAIN"))
        token = f"\0{user}\0{user}".encode()
        answer = self.ask_raw(SASL_AUTHENTICATE, 0, wire.nullable_bytes(token))
        if answer[4:6] != b"\0\0":
            raise Closed(f"{user} is refused")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, payload: bytes) -> None:
        """One frame. A peer that does not read must not stop the fuzzer: then it is closed."""
        frame = wire.framed(payload)
        self.sent_bytes += len(frame)
        try:
            self._socket.sendall(frame)
        except OSError:
            raise Closed from None

    def send_some(self, frames: bytearray) -> int:
        """As many bytes of whole frames as go without waiting."""
        try:
            sent = self._socket.send(frames, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            raise Closed from None
        self.sent_bytes += sent
        return sent

    def answers(self, wait_s: float) -> list[bytes]:
        """Received bytes, at the latest after `wait_s` of silence; Closed if none will come."""
        found: list[bytes] = []
        while not found:
            ready, _, _ = select.select([self._socket], [], [], wait_s)
            if not ready:
                return found
            try:
                some = self._socket.recv(1 << 20)
            except OSError:
                raise Closed from None
            if not some:
                raise Closed
            self._received += some
            found = self._whole()
        return found

    def _whole(self) -> list[bytes]:
        found = []
        received, begin = self._received, 0
        while len(received) >= begin + 4:
            (size,) = struct.unpack_from(">i", received, begin)
            end = begin + 4 + size
            if len(received) < end:
                break
            found.append(bytes(received[begin + 4 : end]))
            begin = end
        del received[:begin]
        return found

    def ask_raw(self, key: int, version: int, body: bytes) -> bytes:
        """One request by hand and its answer; nothing else may be on its way."""
        self.send(wire.request_header(key, version, 7, "fuzz") + body)
        return self.one_answer()

    def one_answer(self) -> bytes:
        deadline_s = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline_s:
            found = self.answers(self._timeout_s)
            if found:
                return found[0]
        raise TimeoutError("no answer")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
