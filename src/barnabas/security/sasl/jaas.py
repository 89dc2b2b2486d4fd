"""JAAS login configurations, as in `sasl.jaas.config`: `module flag key="value" …;`

A file has them in sections: `KafkaServer { … };`

The grammar follows Java's tokenizer: values are words or quoted with either quote (escapes as in C), comments
are `//` and `/* */`, and every entry ends with a semicolon. No module is ever loaded, so a configuration can
run no code.

Options hold passwords. Neither the `repr` of an entry nor any error shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.core.errors import InvalidConfig

FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | "(?P<double> (?:[^"\\\n]|\\.)* )"
    | '(?P<single> (?:[^'\\\n]|\\.)* )'
    | (?P<word> [\w.$+-]+ )
    | (?P<mark> [=;{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    module: str
    flag: str
    options: dict[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """Without the package: `ScramLoginModule`."""
        return self.module.rpartition(".")[2]

    def render(self) -> str:
        """Text for `sasl.jaas.config`, secrets included."""
        pairs = (f'{name}="{_escaped(value)}"' for name, value in self.options.items())
        return " ".join((self.module, self.flag, *pairs)) + ";"


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    is_mark: bool


def parse_jaas(text: str) -> list[JaasEntry]:
    tokens = _tokens(text)
    entries = []
    while (module := next(tokens, None)) is not None:
        entries.append(_entry(_word(module, "a login module"), tokens))
    if not entries:
        raise InvalidConfig("a JAAS configuration names a login module")
    return entries


def parse_jaas_file(text: str) -> dict[str, list[JaasEntry]]:
    """The sections of a file: `Name { entries };`"""
    tokens = _tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    while (token := next(tokens, None)) is not None:
        name = _word(token, "the name of a section")
        _expect("{", next(tokens, None), f"after {name}")
        entries = sections[name] = []
        while (token := next(tokens, None)) is None or not token.is_mark:
            entries.append(_entry(_word(token, f"a login module in {name}"), tokens))
        _expect("}", token, f"at the end of {name}")
        _expect(";", next(tokens, None), f"after the section {name}")
    return sections


def _expect(mark: str, token: _Token | None, where: str) -> None:
    if token is None or not token.is_mark or token.text != mark:
        raise InvalidConfig(f"a JAAS configuration lacks {mark!r} {where}")


def _entry(module: str, tokens: Iterator[_Token]) -> JaasEntry:
    flag = _word(next(tokens, None), f"a control flag after {module}").lower()
    if flag not in FLAGS:
        raise InvalidConfig(f"the control flag of {module} in a JAAS configuration is not one of {FLAGS}")
    options: dict[str, str] = {}
    while (token := next(tokens, None)) is not None:
        if token.is_mark and token.text == ";":
            return JaasEntry(module, flag, options)
        # Counted, not named: where a quote is missing, an apparent key may be half of a password.
        which = f"option {len(options) + 1} of {module}"
        key = _word(token, f"a name of {which}, or a semicolon")
        equals = next(tokens, None)
        if equals is None or not equals.is_mark or equals.text != "=":
            raise InvalidConfig(f"{which} has no value in a JAAS configuration")
        options[key] = _word(next(tokens, None), f"a value of {which}")
    raise InvalidConfig(f"the entry of {module} in a JAAS configuration does not end with a semicolon")


def _word(token: _Token | None, what: str) -> str:
    if token is None or token.is_mark:
        raise InvalidConfig(f"a JAAS configuration lacks {what}")
    return token.text


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidConfig(f"a JAAS configuration cannot be read from its character {position} on")
        position = match.end()
        kind = match.lastgroup
        if kind == "space":
            continue
        value = match.group(kind) if kind else ""
        yield _Token(_unescaped(value) if kind in ("double", "single") else value, kind == "mark")


def _escaped(value: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", value).replace("\n", r"\n")


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(_meant, value)


def _meant(escape: re.Match[str]) -> str:
    symbol = escape.group(1)
    if symbol[0] in "01234567":
        return chr(int(symbol, 8))
    return _ESCAPED.get(symbol, symbol)
