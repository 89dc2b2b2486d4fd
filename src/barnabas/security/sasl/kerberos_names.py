"""Short names of Kerberos principals, by `sasl.kerberos.principal.to.local.rules`, as in Kafka.

A rule is `DEFAULT`, which takes the first part of a principal of the broker's own realm, or
`RULE:[n:format](expression)s/from/to/g/L`. The latter takes principals with n parts and fills `format`, with
`$0` for the realm and `$1`, `$2` for the parts. If the result matches the whole expression, the substitution
applies to it, in lower (L) or upper (U) case. The first rule that gives a name decides. A name has neither
`/` nor `@`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.core.errors import InvalidConfig

_PRINCIPAL: Final = re.compile(r"(?P<service>[^/@]+)(?:/(?P<host>[^/@]+))?(?:@(?P<realm>[^/@]+))?")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_DEFAULT: Final = "DEFAULT"


class NoMatchingRule(Exception):
    """The principal has no short name."""


class _Rule(NamedTuple):
    parts_count: int
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    repeats: bool
    case: str | None

    def apply(self, parts: list[str]) -> str | None:
        if len(parts) - 1 != self.parts_count:
            return None
        base = re.sub(r"\$(\d)", lambda found: _part(parts, int(found[1])), self.format)
        if self.match is not None and not self.match.fullmatch(base):
            return None
        if self.pattern is not None:
            base = self.pattern.sub(self.replacement, base, count=0 if self.repeats else 1)
        return base.lower() if self.case == "L" else base.upper() if self.case == "U" else base


class KerberosNames:
    """Rules of one listener; INVALID_CONFIG for an invalid rule. `realm` is the broker's own."""

    def __init__(self, rules: Iterable[str], realm: str) -> None:
        self._realm = realm
        self._rules = [None if each.strip() == _DEFAULT else _parsed(each.strip()) for each in rules]

    def short_name(self, principal: str) -> str:
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise NoMatchingRule
        service, host, realm = found["service"], found["host"], found["realm"]
        if host is None and realm is None:
            return service
        parts = [realm or "", service, *([] if host is None else [host])]
        for rule in self._rules:
            name = (service if realm == self._realm else None) if rule is None else rule.apply(parts)
            if name is not None:
                if not name or re.search("[/@]", name):
                    raise NoMatchingRule
                return name
        raise NoMatchingRule


def _part(parts: list[str], number: int) -> str:
    if number >= len(parts):
        raise NoMatchingRule
    return parts[number]


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidConfig(f"sasl.kerberos.principal.to.local.rules: {text!r} is not a rule")
    try:
        return _Rule(
            int(found["count"]),
            found["format"],
            None if found["match"] is None else re.compile(found["match"]),
            None if found["pattern"] is None else re.compile(found["pattern"]),
            re.sub(r"\$(\d)", r"\\g<\1>", found["replacement"] or ""),
            found["repeat"] is not None,
            found["case"],
        )
    except re.error as error:
        raise InvalidConfig(f"sasl.kerberos.principal.to.local.rules: {text!r}: {error}") from None
