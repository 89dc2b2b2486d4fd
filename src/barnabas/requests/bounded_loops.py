"""Loops over the elements that a client names.

A request may name a hundred thousand topics, and one may take a tenth of a millisecond. So no handler loops
over such elements in one turn. It uses `each` and `distinct`, or a `for` whose body yields, and runs in
slices (`requests.time_slicing`). A coroutine wraps them in `context.spread`. The test
`tests/contract/test_bounded_handlers.py` reads all handlers and fails for any other loop.

An element that is named twice is answered once, as in Apache Kafka, which keeps a request's elements in sets
and maps. Otherwise a small request could have a response of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from barnabas.core.steps import Sliced

T = TypeVar("T")
R = TypeVar("R")


def each(elements: Iterable[T], answer: Callable[[T], R]) -> Sliced[list[R]]:
    """Results of `answer` for each element, in their order."""
    answers: list[R] = []
    for element in elements:
        answers.append(answer(element))
        yield
    return answers


def distinct(elements: Iterable[T], name: Callable[[T], Hashable]) -> Sliced[list[T]]:
    """The elements without those whose name occurred before."""
    first: dict[Hashable, T] = {}
    for element in elements:
        first.setdefault(name(element), element)
        yield
    return list(first.values())


def matching(elements: Iterable[T], is_wanted: Callable[[T], bool]) -> Sliced[list[T]]:
    """The elements for which `is_wanted` holds, in their order."""
    wanted: list[T] = []
    for element in elements:
        if is_wanted(element):
            wanted.append(element)
        yield
    return wanted


def parted(elements: Iterable[T], is_first: Callable[[T], bool]) -> Sliced[tuple[list[T], list[T]]]:
    """The elements for which `is_first` holds, and the others, each in their order."""
    first: list[T] = []
    others: list[T] = []
    for element in elements:
        (first if is_first(element) else others).append(element)
        yield
    return first, others
