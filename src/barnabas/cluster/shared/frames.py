"""Frames of the shared store's protocol: a length of four bytes, then a message."""

from __future__ import annotations

import struct
from typing import Final

from barnabas.cluster.shared.fields import MalformedMessage

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""A request has data of at most DATA_BYTES_MAX, and paths beside it."""
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""The names of a million children fit; all other answers are much smaller."""

_LENGTH = struct.Struct(">I")


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class FrameBuffer:
    """Cuts received bytes into the payloads of frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads that are complete now. MalformedMessage if a frame is empty or larger than allowed."""
        received = self._received
        received += data
        payloads: list[bytes] = []
        position = 0
        while len(received) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, position)
            if not 0 < length <= self._frame_bytes_max:
                raise MalformedMessage(f"a frame of {length} bytes; the limit is {self._frame_bytes_max}")
            end = position + _LENGTH.size + length
            if len(received) < end:
                break
            payloads.append(bytes(received[position + _LENGTH.size : end]))
            position = end
        del received[:position]
        return payloads
