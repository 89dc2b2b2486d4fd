"""MetricsData as a client encodes it, written by hand: the reader under test has no writer."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(at: int, key: str, value: bytes) -> bytes:
    return message(at, text(1, key) + message(2, value))


def gauge(name: str, value: float, **attributes: str) -> bytes:
    labels = b"".join(attribute(7, key, text(1, each)) for key, each in attributes.items())
    return text(1, name) + message(5, message(1, labels + double(4, value)))


def increase(name: str, value: int) -> bytes:
    return text(1, name) + message(7, message(1, fixed64(6, value)) + integer(2, 1) + integer(3, 1))


def metrics_data(*metrics: bytes) -> bytes:
    scope = message(1, text(1, "scope")) + b"".join(message(2, metric) for metric in metrics)
    return message(1, message(1, attribute(1, "client_rack", text(1, "r"))) + message(2, scope))
