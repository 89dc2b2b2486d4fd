"""Forbidden SQL in specs from clients: Java calls, programs and files.

Spark's SQL can do all three. `reflect`, `java_method` and `try_reflect` call any static method. `TRANSFORM …
USING 'program'` starts a program. A table named `text.` and a path in backquotes is a file. The service
refuses a spec that names one of them.

The text is checked as tokens, not as a tree: a parser would have to accept what it does not understand. Names
that are computed when the query runs (`IDENTIFIER`) are refused for the same reason.

This check gives a clear message. The protection is in Spark: `spark.checks.confinement` blocks all of it
while such a pipeline runs, in any spelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import sqlglot
from sqlglot.errors import SqlglotError

from barnabas.pipelines.spec.model import PipelineSpec

JAVA_CALLS = ("reflect", "java_method", "try_reflect")
FILE_FORMATS = frozenset(
    ("text", "csv", "json", "parquet", "orc", "avro", "xml", "binaryfile", "libsvm", "jdbc", "kafka", "delta")
)


_SQL_OPTIONS = ("query", "where", "predicate")
_BEFORE_TABLES = frozenset(("FROM", "JOIN", "TABLE"))
_END_OF_COMMENT = ("STAR", "SLASH")
"""In no valid text. Of `/*/* */*/` the tokenizer takes less for a comment than Spark does."""


def sql_texts(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    """Every text of a spec that Spark parses as SQL, with its option path."""
    for at, part in enumerate(spec.transforms):
        given = {name: part.get(name) for name in _SQL_OPTIONS}
        given |= {f"aggregates.{name}": text for name, text in (part.get("aggregates") or {}).items()}
        for name, text in given.items():
            if isinstance(text, str):
                yield f"transforms.{at}.{name}", text


def forbidden_calls(text: str) -> list[str]:
    """Complaints about a query or expression, each a sentence without a subject."""
    try:
        tokens = [_Token(each.token_type.name, each.text) for each in sqlglot.tokenize(text, dialect="spark")]
    except SqlglotError:
        return ["cannot be parsed as SQL, so its effects cannot be checked"]
    return list(dict.fromkeys(_complaints(tokens)))


class _Token(NamedTuple):
    kind: str
    text: str


def _complaints(tokens: list[_Token]) -> Iterator[str]:
    for token, following in pairwise(tokens):
        name = token.text.lower()
        if following.kind == "L_PAREN" and token.kind != "STRING":
            if name in JAVA_CALLS:
                yield f"calls {name}, which runs Java in the service"
            elif name == "identifier":
                yield "names something by IDENTIFIER(…), which cannot be checked; write the name out"
        if name == "using" and following.kind == "STRING":
            yield "starts a program (TRANSFORM … USING)"
        if (token.kind, following.kind) == _END_OF_COMMENT:
            yield "ends a comment that has not begun; Spark may take more for a comment than this check"
    for before, token, dot, last in zip([None, *tokens], tokens, tokens[1:], tokens[2:], strict=False):
        is_quoted = dot.kind == "DOT" and last.kind == "IDENTIFIER"
        if not is_quoted or token.text.lower() not in FILE_FORMATS:
            continue
        if "/" in last.text or (before is not None and before.kind in _BEFORE_TABLES):
            yield f"reads the files at {last.text}; a source of type files does that"
