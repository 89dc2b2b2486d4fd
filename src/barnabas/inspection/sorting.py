"""Order of long lists, in slices: a broker may have a hundred thousand topics or groups."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from barnabas.core.steps import Sliced

T = TypeVar("T")

CHUNK: Final = 128
"""Elements of one step."""

_FIRST = itemgetter(0)


def chunks_of(elements: Iterable[T]) -> Iterator[list[T]]:
    """The elements in lists of a length for one step: a pause for each would cost more than the work."""
    remaining = iter(elements)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def sorted_in_slices(
    elements: Iterable[T], key: Callable[[T], Any], *, descending: bool = False
) -> Sliced[list[T]]:
    """The elements in the order of `key`. Those without one (None) come last either way, and equal ones keep
    their order."""
    parts: list[list[tuple[Any, T]]] = []
    without: list[T] = []
    for chunk in chunks_of(elements):
        pairs = [(key(each), each) for each in chunk]
        known = [pair for pair in pairs if pair[0] is not None]
        if len(known) < len(pairs):
            without += [each for value, each in pairs if value is None]
        parts.append(sorted(known, key=_FIRST, reverse=descending))
        yield
    in_order: list[T] = []
    for merged in chunks_of(heapq.merge(*parts, key=_FIRST, reverse=descending)):
        in_order += [each for _, each in merged]
        yield
    return in_order + without


def matches(name: str, words: Sequence[str]) -> bool:
    """Whether all words, in the fold of `casefold`, are in the name."""
    if not words:
        return True
    shown = name.casefold()
    return all(word in shown for word in words)
