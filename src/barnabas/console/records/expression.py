"""Filter of records: a small language of comparisons, without loops, calls or assignment.

    value.amount > 100 and key startswith "c-"
    header.trace == "42" or not exists(value.customer)
    value.items[0].sku in ["A-1", "A-2"] and timestamp >= "2026-11-18T09:00"
    value matches "(?i)time.?out"

Names: `key` and `value` (their text; with a path, what the JSON has there), `header.NAME`, `offset`,
`partition`, `timestamp` (milliseconds, or a date and time in UTC), `size` of the value in bytes.
Operators: == != < <= > >= contains startswith endswith matches in; and, or, not; parentheses.

Comparing what cannot be compared is false, so a record of another shape never stops a search. Everything is
bounded: the length of the text, the number of its parts, their depth. `matches` (RE2) takes at worst the time
of the text multiplied by the pattern. So the patterns of a filter have a size, and `matches` looks at the
beginning of a long text. A thread filters a large record (`holds`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import re2

from barnabas.client.extensions.records import Header

CHARACTERS_MAX: Final = 1_000
PARTS_MAX: Final = 200
DEPTH_MAX: Final = 40
JSON_BYTES_MAX: Final = 2 * 1024 * 1024
PATTERN_BYTES_MAX: Final = 1 << 20
PATTERN_STEPS_MAX: Final = 1_000
"""Instructions of all patterns of a filter. Each character of a text may take all of them, 5 ns each."""
MATCHED_CHARACTERS_MAX: Final = 256 * 1024
INLINE_STEPS_MAX: Final = 1_000_000
"""Bytes of a record, times the parts of the filter and the instructions of its patterns."""
HEADER_BYTES: Final = 16
"""For a header to be looked at, beside its name and value."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<word>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[\d{1,6}\])*)
    | (?P<mark>==|!=|<=|>=|&&|\|\||[<>()\[\],!])
    )""",
    re.VERBOSE | re.ASCII,
)
_STEP: Final = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]", re.ASCII)
_COMPARISONS: Final = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith", "matches", "in"}
)
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
MISSING: Final = object()
"""Value of a path that a record does not have. It equals nothing, not even null."""


class InvalidExpression(Exception):
    """The expression cannot be read; the message says where."""


class Candidate:
    """One record, decoded as far as a filter asks."""

    __slots__ = ("_key_json", "_value_json", "headers", "key", "offset", "partition", "timestamp_ms", "value")

    def __init__(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        value_json: Any = MISSING,
    ) -> None:
        """`value_json` is the decoded value, of a record in Avro."""
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers
        self._key_json: Any = None
        self._value_json: Any = None if value_json is MISSING else [value_json]

    def key_json(self) -> Any:
        if self._key_json is None:
            self._key_json = [_parsed(self.key)]
        return self._key_json[0]

    def value_json(self) -> Any:
        if self._value_json is None:
            self._value_json = [_parsed(self.value)]
        return self._value_json[0]


def _parsed(data: bytes | None) -> Any:
    if data is None or len(data) > JSON_BYTES_MAX:
        return MISSING
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return MISSING


@dataclass(frozen=True, slots=True)
class Predicate:
    """A filter."""

    check: Callable[[Candidate], bool]
    steps: int
    """Parts, and instructions of patterns."""

    def __call__(self, record: Candidate) -> bool:
        try:
            return self.check(record)
        except RecursionError:  # two values that are nested deeply
            return False

    def takes_long(self, record: Candidate) -> bool:
        size_bytes = len(record.key or b"") + len(record.value or b"")
        size_bytes += sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)
        return size_bytes * self.steps > INLINE_STEPS_MAX


async def holds(predicate: Predicate, record: Candidate) -> bool:
    """Whether the filter keeps the record."""
    if predicate.takes_long(record):
        return await asyncio.to_thread(predicate, record)
    return predicate(record)


_Get = Callable[[Candidate], Any]


def compile_expression(source: str) -> Predicate:
    """The filter. InvalidExpression says what is wrong, and where."""
    if len(source) > CHARACTERS_MAX:
        raise InvalidExpression(f"a filter has at most {CHARACTERS_MAX:,} characters")
    tokens = _tokens(source)
    parser = _Parser(tokens)
    found = parser.any_of(0)
    parser.end()
    return Predicate(lambda record: _is_true(found(record)), len(tokens) + parser.pattern_steps)


def containing(text: str) -> Predicate:
    """Filter of records that contain the text, in any case, in the key, the value or a header."""
    wanted = text.casefold()

    def check(record: Candidate) -> bool:
        fields = (record.key, record.value, *(value for _, value in record.headers))
        return any(each is not None and wanted in _text(each).casefold() for each in fields)

    return Predicate(check, 1)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def _tokens(source: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while source[at:].strip():
        match = _TOKEN.match(source, at)
        if match is None:
            rest = source[at:].strip()
            raise InvalidExpression(f"cannot read the filter from {rest[:20]!r} on")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind)))
        if len(found) > PARTS_MAX:
            raise InvalidExpression(f"a filter has at most {PARTS_MAX} parts")
        at = match.end()
    if not found:
        raise InvalidExpression("the filter is empty")
    return found


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self.pattern_steps = 0
        """Instructions of the patterns so far."""

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise self._unexpected()

    def any_of(self, depth: int) -> _Get:
        parts = [self._all_of(depth)]
        while self._take("or", "||"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda record: any(_is_true(each(record)) for each in parts)

    def _all_of(self, depth: int) -> _Get:
        parts = [self._negation(depth)]
        while self._take("and", "&&"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else lambda record: all(_is_true(each(record)) for each in parts)

    def _negation(self, depth: int) -> _Get:
        if depth > DEPTH_MAX:
            raise InvalidExpression("the filter is nested too deeply")
        if self._take("not", "!"):
            inner = self._negation(depth + 1)
            return lambda record: not _is_true(inner(record))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> _Get:
        if self._take("("):
            inner = self.any_of(depth + 1)
            self._expect(")")
            return inner
        if self._is("exists"):
            self._next += 1
            self._expect("(")
            got = self._term()
            self._expect(")")
            return lambda record: got(record) is not MISSING
        left_name = self._peek_text()
        left = self._term()
        operator = self._peek_text()
        if operator not in _COMPARISONS or self._tokens[self._next].kind == "string":
            return left
        self._next += 1
        return self._compared(left, operator, is_time=left_name == "timestamp")

    def _compared(self, left: _Get, operator: str, *, is_time: bool) -> _Get:
        if operator == "in":
            options = self._list()
            return lambda record: any(_equal(left(record), each) for each in options)
        if operator == "matches":
            pattern = self._pattern()
            return lambda record: _matches(pattern, left(record))
        right = self._term(is_time=is_time)
        compare = _OPERATORS[operator]
        return lambda record: compare(left(record), right(record))

    def _term(self, *, is_time: bool = False) -> _Get:
        token = self._take_any()
        if token.kind == "number":
            number = float(token.text) if set(token.text) & set(".eE") else int(token.text)
            return lambda _: number
        if token.kind == "string":
            text = _unquoted(token.text)
            value: Any = _time_ms(text) if is_time else text
            return lambda _: value
        if token.kind == "word":
            return _name(token.text)
        self._next -= 1
        raise self._unexpected()

    def _list(self) -> list[Any]:
        self._expect("[")
        found = [self._constant()]
        while self._take(","):
            found.append(self._constant())
        self._expect("]")
        return found

    def _constant(self) -> Any:
        token = self._tokens[self._next] if self._next < len(self._tokens) else None
        if token is None or (token.kind == "word" and token.text not in _CONSTANTS):
            raise InvalidExpression("a list has numbers and texts in quotes")
        return self._term()(_NOTHING)

    def _pattern(self) -> Any:
        token = self._take_any()
        if token.kind != "string":
            raise InvalidExpression("matches takes a pattern in quotes")
        options = re2.Options()
        options.max_mem = PATTERN_BYTES_MAX
        options.log_errors = False
        try:
            pattern = re2.compile(_unquoted(token.text), options)
        except re2.error as error:
            raise InvalidExpression(
                f"the pattern {token.text} is not valid: {_text_of_error(error)}"
            ) from None
        self.pattern_steps += pattern.programsize
        if self.pattern_steps > PATTERN_STEPS_MAX:
            raise InvalidExpression("the patterns of the filter are too large: repeat less often")
        return pattern

    # --- tokens ---

    def _peek_text(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _is(self, text: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next][:2] == ("word", text)

    def _take(self, *texts: str) -> bool:
        token = self._tokens[self._next] if self._next < len(self._tokens) else None
        if token is None or token.kind not in ("word", "mark") or token.text not in texts:
            return False
        self._next += 1
        return True

    def _take_any(self) -> _Token:
        if self._next >= len(self._tokens):
            raise InvalidExpression("the filter ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f", expected {text}")

    def _unexpected(self, hint: str = "") -> InvalidExpression:
        if self._next >= len(self._tokens):
            return InvalidExpression(f"the filter ends too early{hint}")
        token = self._tokens[self._next]
        return InvalidExpression(f"{token.text!r} at character {token.at + 1} does not fit there{hint}")


def _name(word: str) -> _Get:
    if word in _CONSTANTS:
        constant = _CONSTANTS[word]
        return lambda _: constant
    if word.startswith("header.") and "[" not in word:
        wanted = word.removeprefix("header.")
        return lambda record: _header(record, wanted)
    root = re.split(r"[.\[]", word, maxsplit=1)[0]
    steps = [name or int(index) for name, index in _STEP.findall(word[len(root) :])]
    if root in ("key", "value") and steps:
        if root == "key":
            return lambda record: _at(record.key_json(), steps)
        return lambda record: _at(record.value_json(), steps)
    if not steps and root in _FIELDS:
        return _FIELDS[root]
    raise InvalidExpression(
        f"{word!r} is not a name; names are key, value, header.NAME, offset, partition, timestamp, size"
    )


def _text(data: bytes | None) -> Any:
    return None if data is None else data.decode(errors="replace")


def _header(record: Candidate, wanted: str) -> Any:
    for name, value in reversed(record.headers):
        if name == wanted:
            return _text(value)
    return MISSING


def _at(found: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            if not isinstance(found, dict) or step not in found:
                return MISSING
            found = found[step]
        else:
            if not isinstance(found, list) or step >= len(found):
                return MISSING
            found = found[step]
    return found


_FIELDS: Final[dict[str, _Get]] = {
    "key": lambda record: _text(record.key),
    "value": lambda record: _text(record.value),
    "offset": lambda record: record.offset,
    "partition": lambda record: record.partition,
    "timestamp": lambda record: record.timestamp_ms,
    "size": lambda record: 0 if record.value is None else len(record.value),
}
_NOTHING: Final = Candidate(0, 0, 0, None, None, ())


def _is_true(found: Any) -> bool:
    return found is not MISSING and bool(found)


def _equal(left: Any, right: Any) -> bool:
    if left is MISSING or right is MISSING:
        return False
    return type(left) is type(right) and left == right if _is_bool(left, right) else bool(left == right)


def _is_bool(left: Any, right: Any) -> bool:
    return isinstance(left, bool) or isinstance(right, bool)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def check(left: Any, right: Any) -> bool:
        if _is_bool(left, right):
            return False
        is_number = isinstance(left, int | float) and isinstance(right, int | float)
        if is_number or (isinstance(left, str) and isinstance(right, str)):
            return compare(left, right)
        return False

    return check


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return right in left
    return isinstance(left, list) and any(_equal(each, right) for each in left)


def _of_texts(check: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: isinstance(left, str) and isinstance(right, str) and check(left, right)


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "contains": _contains,
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
}


def _matches(pattern: Any, found: Any) -> bool:
    if not isinstance(found, str):
        return False
    try:
        return pattern.search(found[:MATCHED_CHARACTERS_MAX]) is not None
    except (re2.error, ValueError):
        return False


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1])


def _time_ms(text: str) -> int:
    """Milliseconds of a date and time in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidExpression(f"{text!r} is not a time; write it like 2026-11-18T09:00") from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def _text_of_error(error: Exception) -> str:
    found = error.args[0] if error.args else ""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)
