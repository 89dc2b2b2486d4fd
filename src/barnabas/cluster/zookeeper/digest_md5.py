"""SASL DIGEST-MD5 client (RFC 2831) for the login to ZooKeeper; without I/O.

MD5 is weak, but ZooKeeper has no other mechanism for names and passwords. The password is never sent, and the
server proves that it knows it too. TLS protects everything else on the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

REALM_HOST: Final = "zk-sasl-md5"
"""Host name of ZooKeeper servers in the digest, independent of their real host names."""

_PAIR: Final = re.compile(r'\s*([A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,"]*))\s*(?:,|$)')
_COUNT: Final = "00000001"


class LoginRefused(Exception):
    """The server does not speak this mechanism, or has not proved that it knows the password."""


@dataclass(frozen=True, slots=True)
class DigestLogin:
    user: str
    password: str = field(repr=False)

    def exchange(self, nonce: str = "") -> Generator[bytes, bytes, None]:
        """Yield messages to send and receive the server's; end when the server is verified."""
        asked = _pairs((yield b""))
        server_nonce, realm = asked.get("nonce", ""), asked.get("realm", "")
        if not server_nonce or "auth" not in asked.get("qop", "auth").split(","):
            raise LoginRefused("ZooKeeper does not offer a login with name and password")
        own_nonce = nonce or secrets.token_hex(16)
        uri = f"zookeeper/{REALM_HOST}"
        known = _md5(_bytes(self.user) + b":" + _bytes(realm) + b":" + _bytes(self.password))
        session = _md5(known + f":{server_nonce}:{own_nonce}".encode()).hex()

        def digest(method: str) -> str:
            about = _md5(f"{method}:{uri}".encode()).hex()
            return _md5(f"{session}:{server_nonce}:{_COUNT}:{own_nonce}:auth:{about}".encode()).hex()

        said = {"username": self.user, "realm": realm, "nonce": server_nonce, "cnonce": own_nonce}
        quoted = ",".join(f'{name}="{_escaped(value)}"' for name, value in said.items())
        proof = _pairs(
            (
                yield f'charset=utf-8,{quoted},nc={_COUNT},qop=auth,digest-uri="{uri}",'
                f"response={digest('AUTHENTICATE')}".encode()
            )
        )
        if not hmac.compare_digest(proof.get("rspauth", "").encode(), digest("").encode()):
            raise LoginRefused("ZooKeeper has not proved that it knows the password")


def _pairs(message: bytes) -> dict[str, str]:
    text, position, found = message.decode(errors="replace"), 0, dict[str, str]()
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise LoginRefused("ZooKeeper's response is not valid DIGEST-MD5")
        quoted, plain = match[2], match[3]
        found[match[1]] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
    return found


def _bytes(text: str) -> bytes:
    """Bytes for the digest: Latin-1 where possible, as the RFC requires."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
