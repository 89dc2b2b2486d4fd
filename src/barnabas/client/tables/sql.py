"""SQL over topics: DuckDB runs the query, and the topics that it names are its tables.

    query_topics("SELECT key, count(*) FROM orders WHERE timestamp >= now() - INTERVAL 1 HOUR GROUP BY key")

Lower bounds of `timestamp` that the query states for a topic are pushed down: reading begins with the first
record at or after the latest of them. Every record before it is older, so that no row is lost. An upper bound
is left to DuckDB: where producers set the times, a record behind a later one may be older. `until` cuts there
on request.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from barnabas.client.tables.read import TopicTable, need
from barnabas.client.tables.time_bounds import Time

if TYPE_CHECKING:
    import duckdb

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def query_topics(
    query: str, *, since: Time | None = None, until: Time | None = None, **options: Any
) -> duckdb.DuckDBPyRelation:
    """Result of a query. `since` and `until` bound every topic; options are those of `read`."""
    duckdb_ = need("duckdb", "sql")
    connection = duckdb_.connect()
    for topic in sorted(connection.get_table_names(query)):
        bound = since if since is not None else lower_bound(query, topic, connection)
        table = TopicTable(topic, since=bound, until=until, columns=_COLUMNS, **options)
        connection.register(topic, table.to_arrow())
    found: duckdb.DuckDBPyRelation = connection.sql(query)
    return found


def lower_bound(query: str, topic: str, connection: Any) -> datetime | None:
    """Latest lower bound of `timestamp` in every place where the query reads the topic."""
    sqlglot = need("sqlglot", "sql")
    exp = sqlglot.exp
    bounds: list[datetime | None] = []
    for select in sqlglot.parse_one(query, dialect="duckdb").find_all(exp.Select):
        sources = [each for each in select.find_all(exp.Table) if each.parent_select is select]
        if topic not in [each.name for each in sources]:
            continue
        if len(sources) > 1:
            return None  # the bound may be of another table
        where = select.args.get("where")
        bounds.append(None if where is None else _bound_of(where.this, exp, connection))
    found = [each for each in bounds if each is not None]
    return min(found) if found and len(found) == len(bounds) else None


def _bound_of(condition: Any, exp: Any, connection: Any) -> datetime | None:
    """Latest of the bounds that are joined by AND."""
    found: list[datetime] = []
    for each in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        low = None
        if isinstance(each, exp.GTE | exp.GT) and _is_timestamp(each.this, exp):
            low = each.expression
        elif isinstance(each, exp.LTE | exp.LT) and _is_timestamp(each.expression, exp):
            low = each.this
        elif isinstance(each, exp.Between) and _is_timestamp(each.this, exp):
            low = each.args["low"]
        if low is not None and not list(low.find_all(exp.Column, exp.Subquery, exp.Select)):
            value = connection.execute(
                f"SELECT epoch_ms(CAST(({low.sql(dialect='duckdb')}) AS TIMESTAMPTZ))"
            ).fetchall()[0][0]
            if value is not None:
                found.append(_from_ms(value))
    return max(found) if found else None


def _is_timestamp(node: Any, exp: Any) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == "timestamp"


def _from_ms(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
