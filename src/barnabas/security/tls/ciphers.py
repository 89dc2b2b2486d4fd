"""Cipher suites: Java's names, which Kafka's settings use, in OpenSSL's spelling.

TLS 1.3 has three suites, all of them good, and OpenSSL's list of ciphers does not apply to them. They are
offered, or, if the settings name none of them, TLS 1.3 is disabled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TLS13_SUITES = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})

_JAVA_NAME = re.compile(r"(?:TLS|SSL)_(?P<exchange>[A-Z0-9_]+?)_WITH_(?P<cipher>[A-Z0-9_]+)")
_AES = re.compile(r"AES_(?P<bits>128|256)_(?P<mode>GCM|CBC|CCM)(?:_(?P<hash>SHA(?:256|384)?))?")


class Suites(NamedTuple):
    older: str
    """Suites up to TLS 1.2, as OpenSSL's list of ciphers; empty if there are none."""
    has_tls13: bool


def suites_of(names: Sequence[str]) -> Suites:
    older = [_openssl_name(name) for name in names if name not in TLS13_SUITES]
    return Suites(":".join(older), any(name in TLS13_SUITES for name in names))


def _openssl_name(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is `ECDHE-RSA-AES256-GCM-SHA384`; OpenSSL's own stay."""
    java = _JAVA_NAME.fullmatch(name)
    if java is None:
        return name
    exchange = "" if java["exchange"] == "RSA" else java["exchange"].replace("_", "-") + "-"
    cipher = java["cipher"]
    aes = _AES.fullmatch(cipher)
    if aes is None:
        return exchange + cipher.removesuffix("_SHA256").replace("_", "-")
    mode = "" if aes["mode"] == "CBC" else f"-{aes['mode']}"
    return f"{exchange}AES{aes['bits']}{mode}" + (f"-{aes['hash']}" if aes["hash"] else "")
