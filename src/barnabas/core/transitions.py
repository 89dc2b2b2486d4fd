"""State machines as tables of valid previous states.

A table maps each state to the states that it may follow. It is complete: every state of the enum has a row.
The code consults it, and `rows` serves the diagrams.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(Exception):
    """The requested state cannot follow the current one."""


class Transitions(Generic[S]):
    """`Transitions({ONLINE: {NEW, OFFLINE}, …})`: the valid previous states of each state."""

    def __init__(self, valid_previous: Mapping[S, frozenset[S]]) -> None:
        states = set(type(next(iter(valid_previous))))
        assert valid_previous.keys() == states, "a transition table has one row per state"
        self._valid_previous = dict(valid_previous)

    def allows(self, current: S, target: S) -> bool:
        return current in self._valid_previous[target]

    def check(self, current: S, target: S) -> None:
        if not self.allows(current, target):
            allowed = ", ".join(sorted(state.name for state in self._valid_previous[target]))
            raise IllegalTransition(
                f"{target.name} cannot follow {current.name}; it follows: {allowed or 'nothing'}"
            )

    def rows(self) -> Mapping[S, frozenset[S]]:
        return self._valid_previous
