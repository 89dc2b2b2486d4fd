"""Regular expressions whose cost is linear in the text, whatever the pattern.

Clients send patterns (KIP-848), and Kafka promises RE2's syntax and RE2's safety: no pattern can make the
broker think for long, which Python's own backtracking matcher cannot promise. This is the part of RE2 that
makes sense for topic names, without captures: literals, `.`, classes, `\\d \\w \\s`, groups, `|`,
`* + ? {n,m}` (greedy or not is the same for a whole match), `^ $`, `(?i)`. Back-references and look-around
do not exist in RE2 either. Patterns match whole names.

A pattern becomes a nondeterministic automaton; matching follows all its states at once and remembers each
set of states it met with each character, so the second name is cheap.

Linear is not yet little: a pattern of thousands of states, against thousands of names, would keep the loop
for seconds. So the states that are visited on behalf of one question are counted, and a pattern that needs
too many is refused. What is remembered is bounded by the same measure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from barnabas.core.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX: Final = 4_096
REPEAT_MAX: Final = 1_000
NESTING_MAX: Final = 100
STATES_MAX: Final = 4_000
REMEMBERED_STATES_MAX: Final = 50_000
"""States in all sets that are remembered; more are forgotten and found again."""
VISITS_MAX: Final = 200_000
"""States that may be visited to match all names, besides what is remembered; tens of milliseconds."""
CACHED_MAX: Final = 64
"""Patterns that are kept compiled."""

_DIGITS: Final = frozenset("0123456789")
_WORD: Final = frozenset("0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACE: Final = frozenset(" \t\n\r\f\v")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_POSIX: Final = {
    "alpha": frozenset(c for c in _WORD if c.isalpha()),
    "digit": _DIGITS,
    "alnum": frozenset(c for c in _WORD if c.isalnum()),
    "upper": frozenset(c for c in _WORD if c.isupper()),
    "lower": frozenset(c for c in _WORD if c.islower()),
    "word": _WORD,
    "space": _SPACE,
}
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters, or all others."""

    members: frozenset[str]
    is_negated: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.members) != self.is_negated


@dataclass(slots=True)
class _State:
    """Either consumes one character on its way to `following`, or leads on to `branches` at once."""

    characters: Characters | None = None
    following: int = -1
    branches: list[int] = field(default_factory=list)
    at_start: bool = False
    at_end: bool = False


class Regex:
    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
        self._states: list[_State] = []
        self._visits = 0
        self._accept = self._new()
        self._first = _Parser(pattern, self).parse(self._accept)
        self._start = self._closure({self._first}, at_start=True)
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._remembered_states = 0

    def _new(self) -> int:
        if len(self._states) >= STATES_MAX:
            raise InvalidRegularExpression("the pattern is too large")
        self._states.append(_State())
        return len(self._states) - 1

    # Building, backwards: every part is made knowing what follows it

    def consume(self, characters: Characters, following: int) -> int:
        made = self._new()
        self._states[made].characters = characters
        self._states[made].following = following
        return made

    def branch(self, *targets: int, at_start: bool = False, at_end: bool = False) -> int:
        made = self._new()
        state = self._states[made]
        state.branches.extend(targets)
        state.at_start, state.at_end = at_start, at_end
        return made

    def extend(self, branch: int, target: int) -> None:
        self._states[branch].branches.append(target)

    # Matching

    def begin(self) -> Regex:
        """What is matched from now on is one question, and has its own budget."""
        self._visits = 0
        return self

    def matches(self, text: str) -> bool:
        """Whether the pattern matches all of `text`; INVALID_REGULAR_EXPRESSION if it has cost too much."""
        current = self._start
        remembered = self._remembered
        for character in text:
            key = (current, character)
            found = remembered.get(key)
            if found is None:
                found = self._step(current, character)
                self._remembered_states += 1 + len(found)
                if self._remembered_states > REMEMBERED_STATES_MAX:
                    remembered.clear()
                    self._remembered_states = 1 + len(found)
                remembered[key] = found
            if not found:
                return False
            current = found
        return self._accept in self._closure(set(current), at_start=not text, at_end=True)

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        reached = set()
        for number in current:
            state = self._states[number]
            if state.characters is not None and character in state.characters:
                reached.add(state.following)
        return self._closure(reached)

    def _closure(self, numbers: set[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        found = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            if (state.at_start and not at_start) or (state.at_end and not at_end):
                continue
            waiting.extend(state.branches)
        self._visits += len(found)
        if self._visits > VISITS_MAX:
            raise InvalidRegularExpression("the pattern costs too much to match")
        return frozenset(found)


# What a pattern is made of; trees, so that a counted part can be built several times

_Node = tuple[str, object]


class _Parser:
    def __init__(self, pattern: str, regex: Regex) -> None:
        self._pattern = pattern
        self._position = 0
        self._regex = regex
        self._ignore_case = False
        self._depth = 0

    def parse(self, accept: int) -> int:
        node = self._alternatives()
        if self._position < len(self._pattern):
            raise self._wrong("an unmatched )")
        return self._build(node, accept)

    def _wrong(self, what: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{what} at position {self._position} of {self._pattern!r}")

    def _peek(self) -> str:
        return self._pattern[self._position] if self._position < len(self._pattern) else ""

    def _take(self) -> str:
        if self._position >= len(self._pattern):
            raise self._wrong("the pattern ends too early")
        self._position += 1
        return self._pattern[self._position - 1]

    # Reading

    def _alternatives(self) -> _Node:
        ignore_case = self._ignore_case
        options = [self._sequence()]
        while self._peek() == "|":
            self._take()
            options.append(self._sequence())
        self._ignore_case = ignore_case
        return options[0] if len(options) == 1 else ("or", options)

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._repeated())
        return ("and", items)

    def _repeated(self) -> _Node:
        node = self._atom()
        bounds = self._bounds() if self._is_repetition() else None
        if bounds is None:
            return node
        if self._peek() == "?":
            self._take()
        start = self._position
        if self._is_repetition() and self._bounds() is not None:
            raise self._wrong("a repetition of a repetition")
        self._position = start
        return ("repeat", (node, *bounds))

    def _is_repetition(self) -> bool:
        return self._peek() in tuple("*+?{")

    def _bounds(self) -> tuple[int, int | None] | None:
        start = self._position
        match self._take():
            case "*":
                return 0, None
            case "+":
                return 1, None
            case "?":
                return 0, 1
        end = self._pattern.find("}", self._position)
        low, comma, high = self._pattern[self._position : max(end, self._position)].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            self._position = start
            return None
        self._position = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise self._wrong("a repetition that is too large or the wrong way round")
        return least, most

    def _atom(self) -> _Node:  # noqa: PLR0911 - one line per kind of atom
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return ("set", self._class())
            case ".":
                return ("set", Characters(frozenset("\n"), is_negated=True))
            case "^":
                return ("start", None)
            case "$":
                return ("end", None)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._wrong("nothing to repeat")
        return ("set", self._literal(character))

    def _literal(self, character: str) -> Characters:
        if self._ignore_case:
            return Characters(frozenset({character.lower(), character.upper()}))
        return Characters(frozenset({character}))

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._wrong("groups are nested too deeply")
        ignore_case = self._ignore_case
        if self._peek() == "?":
            self._take()
            named = self._pattern.startswith(("P<", "<"), self._position)
            if named and self._pattern[self._position : self._position + 2] not in ("<=", "<!"):
                end = self._pattern.find(">", self._position)
                if end < 0:
                    raise self._wrong("a group name without an end")
                self._position = end + 1
            elif self._flags():
                self._depth -= 1
                return ("and", [])
        node = self._alternatives()
        if self._take() != ")":
            raise self._wrong("a group without an end")
        self._ignore_case = ignore_case
        self._depth -= 1
        return node

    def _flags(self) -> bool:
        """`(?i)` holds for what follows, `(?i:…)` for its own group; True for the former."""
        is_on = True
        while True:
            match self._take():
                case "i":
                    self._ignore_case = is_on
                case "s" | "m" | "U":
                    """Without meaning for names, which have one line."""
                case "-":
                    is_on = False
                case ":":
                    return False
                case ")":
                    return True
                case _:
                    raise self._wrong("look-around and other extensions are not supported")

    def _escape(self) -> _Node:
        character = self._take()
        if character in "dwsDWS":
            return ("set", Characters(_CLASSES[character.lower()], is_negated=character.isupper()))
        if character in "Az":
            return ("start" if character == "A" else "end", None)
        if character == "Q":
            end = self._pattern.find("\\E", self._position)
            end = len(self._pattern) if end < 0 else end
            quoted = self._pattern[self._position : end]
            self._position = min(end + 2, len(self._pattern))
            return ("and", [("set", self._literal(each)) for each in quoted])
        return ("set", self._literal(self._escaped(character)))

    def _escaped(self, character: str) -> str:
        if character == "x":
            digits = self._pattern[self._position : self._position + 2]
            try:
                self._position += 2
                return chr(int(digits, 16))
            except ValueError:
                raise self._wrong("two hexadecimal digits must follow \\x") from None
        if character.isalnum():
            if character in _ESCAPES:
                return _ESCAPES[character]
            raise self._wrong(f"\\{character} is not supported")
        return character

    def _class(self) -> Characters:
        is_negated = self._peek() == "^"
        if is_negated:
            self._take()
        members: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            members |= self._class_item()
        self._take()
        if self._ignore_case:
            members |= {each.lower() for each in members} | {each.upper() for each in members}
        return Characters(frozenset(members), is_negated)

    def _class_item(self) -> set[str]:
        character = self._take()
        if character == "[" and self._peek() == ":":
            end = self._pattern.find(":]", self._position)
            name = self._pattern[self._position + 1 : max(end, self._position)]
            if name not in _POSIX:
                raise self._wrong("an unknown class")
            self._position = end + 2
            return set(_POSIX[name])
        if character == "\\":
            character = self._take()
            if character in "dws":
                return set(_CLASSES[character])
            if character in "DWS":
                return {chr(code) for code in range(128)} - _CLASSES[character.lower()]
            character = self._escaped(character)
        if self._peek() == "-" and self._pattern[self._position + 1 : self._position + 2] not in ("]", ""):
            self._take()
            last = self._take()
            if last == "\\":
                last = self._escaped(self._take())
            if last < character or ord(last) - ord(character) > REPEAT_MAX:
                raise self._wrong("a range that is too large or the wrong way round")
            return {chr(code) for code in range(ord(character), ord(last) + 1)}
        return {character}

    # Building

    def _build(self, node: _Node, following: int) -> int:
        kind, content = node
        regex = self._regex
        match kind:
            case "set":
                assert isinstance(content, Characters)
                return regex.consume(content, following)
            case "and":
                assert isinstance(content, list)
                for item in reversed(content):
                    following = self._build(item, following)
                return following
            case "or":
                assert isinstance(content, list)
                return regex.branch(*(self._build(item, following) for item in content))
            case "repeat":
                assert isinstance(content, tuple)
                return self._build_repeat(content[0], content[1], content[2], following)
            case "start":
                return regex.branch(following, at_start=True)
        return regex.branch(following, at_end=True)

    def _build_repeat(self, node: _Node, least: int, most: int | None, following: int) -> int:
        regex = self._regex
        if most is None:
            loop = regex.branch(following)
            regex.extend(loop, self._build(node, loop))
            following = loop
        else:
            for _ in range(most - least):
                following = regex.branch(following, self._build(node, following))
        for _ in range(least):
            built = self._build(node, following)
            if built == following:
                break  # nothing, however often
            following = built
        return following


@lru_cache(maxsize=CACHED_MAX)
def _compiled(pattern: str) -> Regex:
    return Regex(pattern)


def compile_regex(pattern: str) -> Regex:
    """For one question; INVALID_REGULAR_EXPRESSION if the pattern cannot be understood."""
    return _compiled(pattern).begin()
