"""Rows of every broker key, by theme. `sections` has them all.

They are imported at first use: a client makes its own rows of `keys`, and loads none of the broker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.config.definitions.sections import BROKER_KEYS, SECTIONS

__all__ = ["BROKER_KEYS", "SECTIONS"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.config.definitions import sections  # noqa: PLC0415 - see above

    return getattr(sections, name)
