"""Queries that are a projection and a condition: `SELECT … FROM input [WHERE …]`.

Such a query is the same as `where` and `selectExpr` on the rows, with its own text. A query with anything
else (a join, a group, a subquery, DISTINCT) is not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import sqlglot
from sqlglot import Token
from sqlglot.errors import SqlglotError

_ONLY_ONCE: Final = frozenset({"SELECT", "FROM", "WHERE"})
_ELSE: Final = frozenset(
    {
        "DISTINCT", "GROUP_BY", "HAVING", "ORDER_BY", "SORT_BY", "CLUSTER_BY", "DISTRIBUTE_BY", "LIMIT",
        "OFFSET", "JOIN", "CROSS", "NATURAL", "UNION", "EXCEPT", "INTERSECT", "WITH", "LATERAL", "OVER",
        "WINDOW", "QUALIFY", "VALUES", "TABLE", "TABLE_SAMPLE", "PIVOT", "UNPIVOT", "HINT", "SEMICOLON",
        "USING",
    }
)  # fmt: skip
_OPENING, _CLOSING = frozenset({"L_PAREN", "L_BRACKET"}), frozenset({"R_PAREN", "R_BRACKET"})


class Select(NamedTuple):
    columns: tuple[str, ...]
    where: str | None


def simple_select(query: str) -> Select | None:
    """Columns and condition of a simple query, as it is written; None for any other query."""
    try:
        tokens = sqlglot.tokenize(query, dialect="spark")
    except SqlglotError:
        return None
    kinds = [each.token_type.name for each in tokens]
    if any(kind in _ELSE for kind in kinds) or any(kinds.count(each) > 1 for each in _ONLY_ONCE):
        return None
    if kinds[:1] != ["SELECT"] or "FROM" not in kinds:
        return None
    at = kinds.index("FROM")
    if at + 1 >= len(tokens) or tokens[at + 1].text.lower() != "input":
        return None
    rest = tokens[at + 2 :]
    where = None
    if rest:
        if rest[0].token_type.name != "WHERE" or len(rest) == 1:
            return None
        where = query[rest[1].start : rest[-1].end + 1]
    columns = _columns(query, tokens[1:at])
    return None if columns is None else Select(columns, where)


def _columns(query: str, tokens: list[Token]) -> tuple[str, ...] | None:
    """Texts between the commas that are in no brackets."""
    found: list[str] = []
    depth, begin = 0, 0
    for at, token in enumerate(tokens):
        kind = token.token_type.name
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if kind == "COMMA" and depth == 0:
            found.append(_between(query, tokens[begin:at]))
            begin = at + 1
    found.append(_between(query, tokens[begin:]))
    return tuple(found) if all(found) and depth == 0 else None


def _between(query: str, tokens: list[Token]) -> str:
    return query[tokens[0].start : tokens[-1].end + 1] if tokens else ""
