"""Columns of SQL texts without Spark: names that a text uses, and columns that a query returns.

sqlglot parses Spark's dialect. A text that it cannot parse is left to Spark: an outdated parser must not
refuse a valid query. A name is missing only if no column, field, alias or table in or before the query can be
it. So typing errors are found, and valid queries always pass.

sqlglot logs SQL that it does not understand. Over HTTP a client chooses that text and its rate, so the lines
pass through a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from barnabas.core.clock import SystemClock
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.pipelines.spec.sql.ddl import field_names

logger = logging.getLogger(__name__)

INPUT = "input"
_WORDS = frozenset(
    (
        # Names that Spark defines, or takes for functions without parentheses.
        "col", "pos", "key", "value", "window", "session_window", "_metadata", "current_date",
        "current_timestamp", "current_time", "current_user", "session_user", "user", "localtimestamp",
        "now", "current_catalog", "current_database", "current_schema", "current_timezone", "all",
        "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond",
        "microsecond", "nanosecond",
    )
)  # fmt: skip


class ParserLog(logging.Filter):
    """Rate-limited lines of the SQL parser, each cut to the length of a name."""

    def __init__(self, limited_log: RateLimitedLogger) -> None:
        super().__init__()
        self._limited_log = limited_log

    def filter(self, record: logging.LogRecord) -> bool:
        self._limited_log.warn("parser", "SQL parser: %s", cut(record.getMessage()))
        return False


logging.getLogger("sqlglot").addFilter(ParserLog(RateLimitedLogger(logger, SystemClock())))


@dataclass(frozen=True, slots=True)
class Missing:
    name: str
    line: int
    """Line in the text, from 0."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of rows, with their types where known."""

    types: Mapping[str, str | None]
    is_open: bool = False
    """True if further columns may exist."""

    def has(self, name: str) -> bool:
        folded = name.lower()
        return self.is_open or any(each.lower() == folded for each in self.types)

    def names(self) -> list[str]:
        return list(self.types)


UNKNOWN = Columns({}, is_open=True)


def missing_in_expression(text: str, columns: Columns) -> list[Missing]:
    return [] if columns.is_open else _missing(f"SELECT * FROM {INPUT} WHERE {text}", columns)  # noqa: S608 - parsed, not run


def missing_in_query(text: str, columns: Columns) -> list[Missing]:
    return [] if columns.is_open else _missing(text, columns)


def columns_of(text: str, columns: Columns) -> Columns:
    """Columns that a query returns for rows with `columns`."""
    tree = parsed(text)
    while isinstance(tree, (exp.Union, exp.Subquery)):
        tree = tree.this
    if not isinstance(tree, exp.Select) or not reads_only_input(tree):
        return UNKNOWN
    types: dict[str, str | None] = {}
    is_open = False
    for chosen in tree.selects:
        if isinstance(chosen, exp.Star) and not tree.args.get("joins") and not tree.args.get("laterals"):
            left_out = {
                each.name.lower() for each in chosen.args.get("except_") or chosen.args.get("except") or ()
            }
            types |= {name: kind for name, kind in columns.types.items() if name.lower() not in left_out}
            is_open = is_open or columns.is_open
        elif isinstance(chosen, exp.Column) and not chosen.is_star:
            types[chosen.name] = columns.types.get(chosen.name) if len(chosen.parts) == 1 else None
        elif isinstance(chosen, exp.Alias) and chosen.alias:
            types[chosen.alias] = None
        else:
            is_open = True
    return Columns(types, is_open)


def _missing(text: str, columns: Columns) -> list[Missing]:
    tree = parsed(text)
    if tree is None:
        return []
    tables = _tables(tree)
    if any(each.name.lower() not in tables for each in tree.find_all(exp.Table)):
        return []
    known = {name.lower() for name in _given(tree)} | tables | _WORDS
    for name, kind in columns.types.items():
        known |= {name.lower(), *(field.lower() for field in field_names(kind or ""))}
    found: dict[str, Missing] = {}
    for column in tree.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if parts and parts[0].name.lower() in tables:
            parts = parts[1:]
        if parts and parts[0].name.lower() not in known:
            line = int(parts[0].meta.get("line", 1)) - 1
            found.setdefault(parts[0].name, Missing(parts[0].name, line))
    return list(found.values())


def parsed(text: str) -> exp.Expression | None:
    try:
        found = sqlglot.parse_one(text, dialect="spark")
        return found if isinstance(found, exp.Expression) else None
    except (SqlglotError, RecursionError):
        return None


def reads_only_input(tree: exp.Select) -> bool:
    source = tree.args.get("from_") or tree.args.get("from")
    return source is not None and isinstance(source.this, exp.Table) and source.this.name.lower() == INPUT


def _tables(tree: exp.Expression) -> set[str]:
    """`input`, the tables that the query derives from it, and their aliases."""
    names = {INPUT, *(each.alias_or_name.lower() for each in tree.find_all(exp.CTE))}
    return names | {each.name.lower() for each in tree.find_all(exp.TableAlias)}


def _given(tree: exp.Expression) -> Iterable[str]:
    """Names that the query itself defines."""
    for alias in tree.find_all(exp.Alias, exp.PropertyEQ, exp.Kwarg, exp.Aliases, exp.PivotAlias):
        yield alias.alias or alias.name
        if isinstance(alias, exp.Aliases):
            yield from (each.name for each in alias.aliases)
        yield alias.this.name
    for table in tree.find_all(exp.TableAlias):
        yield from (each.name for each in table.args.get("columns") or ())
    for other in tree.find_all(exp.Lambda, exp.Struct, exp.Window, exp.Pivot):
        yield from (each.name for each in other.find_all(exp.Identifier))
