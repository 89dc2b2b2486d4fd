"""Names that a test writes: of requests, errors, group states. A wrong one is refused, with a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey

GROUP_STATES: Final = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead",
)  # fmt: skip


def api_named(name: str) -> ApiKey:
    known = {each.camel_name: each for each in ApiKey}
    found = known.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"there is no API {name!r}{_hint(name, known)}")
    return found


def error_named(name: str | int) -> type[KafkaError]:
    """The error of a name or a number."""
    known = {each.protocol_name(): each for each in KafkaError.by_code.values()}
    if isinstance(name, str):
        found = known.get(name)
    else:
        found = None if isinstance(name, bool) else KafkaError.by_code.get(name)
    if found is None:
        raise ValueError(f"there is no error {name!r}{_hint(name, known)}")
    return found


def check_group_state(name: str) -> None:
    if name not in GROUP_STATES:
        raise ValueError(f"there is no group state {name!r}{_hint(name, GROUP_STATES)}")


def _hint(name: object, known: Collection[str]) -> str:
    """The nearest name, by its letters in any case."""
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1) if isinstance(name, str) else []
    return f"; did you mean {folded[close[0]]}?" if close else ""
