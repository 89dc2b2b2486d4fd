"""Bearer tokens of visitors (OAUTHBEARER): what the console reads of a token that the brokers verify.

The console verifies no token. It hands the token to a broker, and a visitor whom the broker refuses has no
session. Afterwards the claims of the token name its user on the page, and say when the session ends.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

TOKEN_CHARACTERS_MAX: Final = 12_000
USER_CHARACTERS_MAX: Final = 200
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""A signed JWT in the compact form."""


class NoToken(ValueError):
    """The text is not a bearer token that brokers could verify; the message says why."""


@dataclass(frozen=True, slots=True)
class Bearer:
    token: str = field(repr=False)
    user: str
    ends_s: float
    """Seconds since 1970."""


def read_bearer(text: str, user_claim: str) -> Bearer:
    """Claims of a token. NoToken if it has no form of a token, no user or no end."""
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise NoToken(f"a token has at most {TOKEN_CHARACTERS_MAX:,} characters")
    if _TOKEN.fullmatch(text) is None:
        raise NoToken("this is not a signed token (three parts with dots between them)")
    claims = _claims(text.split(".")[1])
    user, ends_s = claims.get(user_claim), claims.get("exp")
    if not isinstance(user, str) or not user or not user.isprintable():
        raise NoToken(f"the token names no user in its claim {user_claim}")
    if isinstance(ends_s, bool) or not isinstance(ends_s, int | float) or not 0 <= ends_s < 2**40:
        raise NoToken("the token says no time at which it ends")
    return Bearer(text, user[:USER_CHARACTERS_MAX], float(ends_s))


def _claims(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise NoToken("the claims of the token cannot be read") from None
    if not isinstance(found, dict):
        raise NoToken("the claims of the token cannot be read")
    return found
