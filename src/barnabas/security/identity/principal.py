"""Principal of a request: a kind and a name, as `User:alice`."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import InvalidRequest

USER = "User"


class KafkaPrincipal(NamedTuple):
    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """`User:alice`; the name may contain colons."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise InvalidRequest(f"{text!r} is not a principal; one looks like User:alice")
        return cls(kind, name)

    @classmethod
    def user(cls, name: str) -> KafkaPrincipal:
        return cls(USER, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = KafkaPrincipal.user("ANONYMOUS")
"""Principal of a client without authentication, on a listener that demands none."""
