"""RE2 regular expressions of subscriptions (KIP-848), matched against whole topic names.

RE2's cost is linear in the text for any pattern, which Python's own backtracking matcher cannot promise.
Linear may still be much: a pattern of thousands of states, against thousands of names, would keep the loop
for seconds. So the processor time of one resolution is counted, and a pattern that needs too much is refused.
Its memory is bounded too. So are its Unicode classes, each of which takes a third of a millisecond to
compile. A pattern that cannot be compiled is remembered like one that can.

`re2` is imported with the first pattern: most brokers never see one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from barnabas.core.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX: Final = 4_096
MEMORY_BYTES_MAX: Final = 256 * 1024
"""For the program of a pattern and RE2's cache while it matches."""
UNICODE_CLASSES_MAX: Final = 32
CPU_MS_MAX: Final = 200.0
CPU_MS_PER_NAME: Final = 0.01
"""Cost allowed for matching all names: a fixed part, and this for each name, several times the usual."""
CACHED_MAX: Final = 64
"""Patterns kept compiled."""


class Regex:
    """A pattern, matched against the names of one resolution. INVALID_REGULAR_EXPRESSION if it cannot be
    compiled, or has cost too much."""

    __slots__ = ("_cpu_ms", "_fullmatch", "_left_ms", "_pattern")

    def __init__(
        self, pattern: str, cpu_ms: Callable[[], float] = lambda: time.thread_time() * 1_000
    ) -> None:
        self._pattern = pattern
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
        compiled = _compiled(pattern)
        if isinstance(compiled, InvalidRegularExpression):
            raise InvalidRegularExpression(compiled.message)
        self._fullmatch = compiled.fullmatch
        self._cpu_ms = cpu_ms
        self._left_ms = CPU_MS_MAX

    def matches(self, name: str) -> bool:
        begun_ms = self._cpu_ms()
        found = self._fullmatch(name) is not None
        self._left_ms += CPU_MS_PER_NAME - (self._cpu_ms() - begun_ms)
        if self._left_ms < 0:
            raise InvalidRegularExpression(f"the pattern costs too much to match: {self._pattern!r}")
        return found


@lru_cache(maxsize=CACHED_MAX)
def _compiled(pattern: str) -> Any:
    """The compiled pattern, or the error of its compilation."""
    import re2  # noqa: PLC0415 - most brokers never need it

    if pattern.count("\\p") + pattern.count("\\P") > UNICODE_CLASSES_MAX:
        return InvalidRegularExpression(f"a pattern has at most {UNICODE_CLASSES_MAX} Unicode classes")
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        return InvalidRegularExpression(f"{error.args[0].decode()} in {pattern!r}")
