"""Topics that the Python of a project names as text: `.option("subscribe", "orders")`.

The checkpoints say which topics a project reads, but only after its first record. Until then these names tell
the service where that record would be. Names that are computed when the project runs stay unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

SUBSCRIBE: Final = "subscribe"


def named_topics(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for value in _subscriptions(node):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found |= {each.strip() for each in value.value.split(",") if each.strip()}
    return found


def _subscriptions(call: ast.Call) -> Iterator[ast.expr]:
    """Values of `option("subscribe", …)` and of `options(subscribe=…)`."""
    first = call.args[0] if len(call.args) == 2 else None
    if isinstance(first, ast.Constant) and first.value == SUBSCRIBE:
        yield call.args[1]
    yield from (each.value for each in call.keywords if each.arg == SUBSCRIBE)
