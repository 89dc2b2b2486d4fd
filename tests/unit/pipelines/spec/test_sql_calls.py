"""SQL that comes over HTTP: what it must not do, in the spellings that Spark takes."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.service.config_provider_policy import NOTHING_ALLOWED
from barnabas.pipelines.spec.sql_calls import forbidden_calls
from barnabas.pipelines.spec.validation import load_document


@pytest.mark.parametrize(
    "text",
    [
        "SELECT reflect('java.lang.System', 'getenv', 'X') AS a FROM input",
        "SELECT REFLECT ('java.lang.System', 'exit', 3) FROM input",
        "SELECT `reflect`('java.lang.System', 'getenv') FROM input",
        "SELECT system.builtin.java_method/* hidden */('a', 'b') FROM input",
        "SELECT coalesce(try_reflect('javax.naming.InitialContext', 'doLookup', 'ldap://h'), '') FROM input",
        "FROM input |> SELECT java_method('a', 'b') AS a",
        "WITH a AS (SELECT reflect('a', 'b') AS x FROM input) SELECT x FROM a",
        "SELECT IDENTIFIER('ref' || 'lect')('a', 'b') FROM input",
        "SELECT TRANSFORM (a) USING 'cat /etc/passwd' AS (b) FROM input",
        "FROM input REDUCE a USING 'sh' AS (b)",
        "SELECT f.value FROM input CROSS JOIN text.`/etc/passwd` f",
        "SELECT * FROM input, binaryFile.`/etc/shadow`",
        "SELECT * FROM input WHERE id IN (SELECT _c0 FROM csv.`ids`)",
        # Spark reads one comment, the tokenizer a shorter one.
        "SELECT reflect /*/* */*/('java.lang.System', 'getenv', 'X') AS a FROM input",
        "SELECT TRANSFORM (a) USING /*/* */*/ 'cat /etc/passwd' AS (b) FROM input",
        "SELECT * FROM /*/* */*/ csv.`ids`",
    ],
)
def test_a_text_that_leaves_the_rows_is_refused(text: str) -> None:
    assert forbidden_calls(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT reflect, java_method AS try_reflect FROM input",
        "SELECT id FROM input WHERE name LIKE 'reflect(%'",
        "SELECT * FROM input a JOIN input b USING (id)",
        "SELECT text.value, json.`a b` FROM input -- reflect('a', 'b')",
        "SELECT transform(items, x -> x + 1) AS items, parse_url(url, 'HOST') FROM input",
        "SELECT identifier FROM input",
        "SELECT count(*) / 2 /* of /* all */ rows */ FROM input",
    ],
)
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert forbidden_calls(text) == []


CALL = "reflect('java.lang.System', 'getenv', 'X')"


@pytest.mark.parametrize(
    ("transform", "place"),
    [
        ({"sql": f"SELECT {CALL} AS a FROM input"}, "transforms.0.query"),
        ({"filter": f"{CALL} = 'a'"}, "transforms.0.where"),
        ({"filter": "id IN (SELECT value FROM text.`/etc/passwd`)"}, "transforms.0.where"),
        ({"window": {"time": "at", "size": "1 minute", "aggregates": {"a": f"max({CALL})"}}}, "aggregates.a"),
        ({"MaskField": {"fields": ["id"], "predicate": f"{CALL} = 'a'"}}, "transforms.0.predicate"),
        ({"sql": "SELECT '${env:TOP_SECRET}' AS a FROM input"}, "transforms.0.query"),
    ],
)
def test_sql_is_looked_at_wherever_a_spec_has_it(transform: dict[str, Any], place: str) -> None:
    spec = load_document(
        {
            "name": "p",
            "source": {"type": "topic", "topics": "s", "schema": "id BIGINT, at TIMESTAMP"},
            "transforms": [transform],
            "sink": {"type": "topic", "topic": "o"},
        }
    )
    assert any(place in complaint for complaint in NOTHING_ALLOWED.complaints(spec))


def test_a_spec_does_not_turn_files_into_tables_again() -> None:
    spec = load_document(
        {
            "name": "p",
            "source": {"type": "rate"},
            "sink": {"type": "console"},
            "spark": {"conf": {"spark.sql.runSQLOnFiles": "true", "spark.sql.variable.substitute": "true"}},
        }
    )
    assert len(list(NOTHING_ALLOWED.complaints(spec))) == 2
