"""Aggregations in SQL texts that Spark refuses, found without Spark.

Two faults are certain. A column that is selected beside an aggregate must be grouped or aggregated itself. An
aggregation over a stream without a watermark never has a final row, so Spark does not start it. Anything less
certain, such as a grouping set, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from barnabas.pipelines.spec.sql.columns import Columns, parsed, reads_only_input

_SETS = ("grouping_sets", "cube", "rollup", "all")
_SET_KINDS = (exp.GroupingSets, exp.Cube, exp.Rollup)


def aggregates(text: str) -> bool:
    """Whether the query itself, not a part of it, aggregates the rows of `input`."""
    tree = parsed(text)
    return isinstance(tree, exp.Select) and reads_only_input(tree) and _is_aggregate(tree)


def ungrouped_columns(text: str, columns: Columns) -> list[tuple[str, int]]:
    """Selected columns that are neither grouped nor aggregated, each with its line in the text, from 0."""
    tree = parsed(text)
    if not isinstance(tree, exp.Select) or not reads_only_input(tree) or not _is_aggregate(tree):
        return []
    group = tree.args.get("group")
    if group is not None and (any(group.args.get(name) for name in _SETS) or group.find(*_SET_KINDS)):
        return []
    if tree.args.get("laterals") or tree.args.get("joins"):
        return []
    grouped = {_folded(each) for each in (group.expressions if group is not None else ())}
    found = []
    for position, chosen in enumerate(tree.selects, 1):
        plain = chosen.this if isinstance(chosen, exp.Alias) else chosen
        names = {_folded(plain), chosen.alias_or_name.lower(), str(position)}
        is_known = isinstance(plain, exp.Column) and len(plain.parts) == 1 and columns.has(plain.name)
        if is_known and not columns.is_open and not names & grouped:
            found.append((plain.name, int(plain.this.meta.get("line", 1)) - 1))
    return found


def _folded(each: Any) -> str:
    return (
        str(each.name).lower()
        if isinstance(each, (exp.Column, exp.Literal))
        else str(each.sql("spark")).lower()
    )


def _is_aggregate(tree: exp.Select) -> bool:
    return tree.args.get("group") is not None or any(True for each in tree.selects for _ in _own(each))


def _own(chosen: Any) -> Iterator[exp.AggFunc]:
    """Aggregate functions of a selected expression, without those over a window and in subqueries."""
    for each in chosen.find_all(exp.AggFunc):
        if each.find_ancestor(exp.Window, exp.Subquery, exp.Lambda) is None:
            yield each
