"""`ssl.principal.mapping.rules`: from the name in a certificate to a user.

Rules are tried in order: `RULE:pattern/replacement/` with L or U behind it for a lower or an upper case
result, and `DEFAULT`, which takes the whole name. A pattern must match the whole name; in the replacement
`$1` is its first group. A name without a matching rule is rejected, as in Kafka.

Patterns are RE2's, which never take exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.errors import InvalidConfig

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|\n|$)"
)
_GROUP = re.compile(r"\$(\d)|\\(.)")

Rule = Callable[[str], str | None]


class PrincipalMapping:
    """Rules of one listener."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str) -> PrincipalMapping:
        rules: list[Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise InvalidConfig(
                    f"ssl.principal.mapping.rules: {text[position:]!r} is not a rule; one is DEFAULT or"
                    " RULE:pattern/replacement/ with L or U behind it"
                )
            rules.append(
                str if found["default"] else _rule(found["pattern"], found["replacement"], found["case"])
            )
            position = found.end()
        return cls(rules)

    def user(self, name: str) -> str | None:
        """User for the subject of a certificate; None if no rule matches."""
        return next((user for rule in self._rules if (user := rule(name)) is not None), None)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    compiled = _compile(pattern)
    groups = compiled.groups

    def apply(name: str) -> str | None:
        match = compiled.fullmatch(name)
        if match is None:
            return None

        def fill(reference: re.Match[str]) -> str:
            if reference[2] is not None:
                return reference[2]
            number = int(reference[1])
            return (match[number] or "") if number <= groups else reference[0]

        user = _GROUP.sub(fill, replacement)
        return user.lower() if case == "L" else user.upper() if case == "U" else user

    return apply


def _compile(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - a broker without such rules does without it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidConfig(f"ssl.principal.mapping.rules: {pattern!r} is not a pattern: {error}") from None
