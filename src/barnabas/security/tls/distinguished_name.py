"""Subject of a certificate, in the form that Java prints and that Kafka's rules and ACLs use.

That is RFC 2253: the last part of the name first, parts joined by commas. Nine attributes have short names;
every other has its number, with the bytes of its value in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography import x509

_SHORT_NAMES = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip

_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
"""Encodings of the string types, by tag."""

_ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate_der: bytes) -> str:
    """The subject's name; ValueError if this is not a certificate."""
    return name_of(x509.load_der_x509_certificate(certificate_der).subject.public_bytes())


def name_of(subject_der: bytes) -> str:
    ((_, parts, _),) = _elements(subject_der)
    names = ["+".join(_attribute(pair) for _, pair, _ in _elements(part)) for _, part, _ in _elements(parts)]
    return ",".join(reversed(names))


def _attribute(pair: bytes) -> str:
    (_, identifier, _), (tag, content, whole) = _elements(pair)
    number = _dotted(identifier)
    short = _SHORT_NAMES.get(number)
    if short is None or tag not in _ENCODINGS:
        return f"{short or number}=#{whole.hex()}"
    return f"{short}={_escape(content.decode(_ENCODINGS[tag], 'replace'))}"


def _escape(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in value)
    inner = escaped.strip(" ")
    if not inner:
        return "\\ " * len(escaped)
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(escaped.rstrip(" "))
    return "\\ " * leading + inner + "\\ " * trailing


def _dotted(identifier: bytes) -> str:
    numbers = [min(identifier[0] // 40, 2)]
    numbers.append(identifier[0] - 40 * numbers[0])
    value = 0
    for byte in identifier[1:]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Consecutive elements of `der`: tag, content, and the whole element."""
    position = 0
    while position < len(der):
        begin = position
        tag, length = der[position], der[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[position : position + size])
            position += size
        yield tag, der[position : position + length], der[begin : position + length]
        position += length
