"""Unknown names are found without Spark; valid ones pass."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load, load_document
from barnabas.pipelines.spec.yaml_source import read_yaml

SCHEMA = (
    "user STRING, page STRING, ms INT, at TIMESTAMP, who STRUCT<name STRING, city STRING>, tags ARRAY<STRING>"
)
SOURCE = {"type": "topic", "topics": "clicks", "schema": SCHEMA}


def told(*transforms: Any, **more: Any) -> str:
    document = {
        "name": "p", "source": SOURCE, "transforms": list(transforms), "sink": {"type": "console"}, **more,
    }  # fmt: skip
    try:
        load_document(document)
    except InvalidSpec as error:
        return "\n".join(problem.message for problem in error.problems)
    return ""


def test_a_misspelt_column_in_a_query_is_reported_with_its_line_and_a_suggestion() -> None:
    text = """
        name: p
        source: {type: topic, topics: clicks, schema: "user STRING, page STRING"}
        transforms:
          - filter: pgae IS NOT NULL
          - sql: |
              SELECT page,
                upper(usr) AS user
              FROM input
        sink: {type: console}
    """
    with pytest.raises(InvalidSpec) as caught:
        load(read_yaml(textwrap.dedent(text).strip(), "p.yaml"))
    assert str(caught.value).splitlines() == [
        "p.yaml:4: transforms.0: there is no column 'pgae'; did you mean 'page'?",
        "p.yaml:7: transforms.1: there is no column 'usr'; did you mean 'user'?",
    ]


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        ({"sql": "SELECT i.pagge FROM input i"}, "no column 'pagge'; did you mean 'page'?"),
        ({"sql": "WITH x AS (SELECT * FROM input) SELECT x.pagge FROM x"}, "no column 'pagge'"),
        ({"filter": "whoo.name = 'ada'"}, "no column 'whoo'; did you mean 'who'?"),
        ({"type": "window", "time": "att", "size": "1 minute"}, "no column 'att'; did you mean 'at'?"),
        (
            {"type": "window", "time": "at", "size": "1 minute", "aggregates": {"n": "max(mss)"}},
            "no column 'mss'",
        ),
        ({"deduplicate": ["usr"]}, "no column 'usr'; did you mean 'user'?"),
        ({"MaskField": "usr"}, "no column 'usr'"),
        ({"Cast": ["mss:int64"]}, "no column 'mss'"),
        ({"type": "MaskField", "fields": "user", "predicate": "pgae = '/'"}, "no column 'pgae'"),
    ],
)
def test_a_name_without_a_column_is_reported(transform: Any, words: str) -> None:
    assert words in told(transform)


def test_columns_are_followed_through_the_transforms() -> None:
    assert "no column 'page'; there are who, name" in told(
        {"sql": "SELECT who, upper(user) AS name FROM input"}, {"filter": "page = '/'"}
    )
    assert "no column 'at'" in told(
        {"type": "window", "time": "at", "size": "1 minute"}, {"filter": "at > 1"}
    )
    assert told({"Flatten": "_"}, {"filter": "who_city = 'Brno' AND _offset > 1"}) == ""
    assert "no column 'who'" in told({"Flatten": "_"}, {"filter": "who.city = 'Brno'"})
    assert told({"ReplaceField": {"renames": ["user:name"]}}, {"filter": "name = 'a'"}) == ""
    assert "no column 'page'" in told({"ReplaceField": {"renames": ["page:name"]}}, {"filter": "page = 'a'"})
    sink = {"type": "files", "path": "out", "partition_by": ["dya"]}
    assert "no column 'dya'; did you mean 'day'?" in told(
        {"sql": "SELECT *, date(at) AS day FROM input"}, sink=sink
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, date(at) AS day FROM input WHERE page IS NOT NULL",
        "SELECT PAGE, Ms * 2 AS twice, twice + 1 AS more FROM input",
        "SELECT i.who.city, tags[0], transform(tags, t -> upper(t)) AS up FROM input i",
        "SELECT user, z FROM input LATERAL VIEW explode(tags) t AS z",
        "SELECT page, count(*) AS n FROM input GROUP BY page HAVING n > 1 ORDER BY n",
        "SELECT name FROM (SELECT user AS name FROM input)",
        "SELECT a.page FROM input a JOIN input b ON a.user = b.user",
        "SELECT col FROM (SELECT explode(tags) FROM input)",
        "SELECT pos, col FROM (SELECT posexplode(tags) FROM input)",
        "SELECT timestampadd(MINUTE, 1, at) AS t, extract(YEAR FROM at) AS y FROM input",
        "SELECT current_timestamp AS c, current_date FROM input",
        "SELECT * EXCEPT (ms) FROM input",
        "SELECT named_struct('a', ms).a, exists(_headers, h -> h.key = 'x') AS e, _key FROM input",
        "SELECT whatever FROM input JOIN a_table_of_the_catalogue USING (user)",
        "SELECT row_number() OVER (PARTITION BY user ORDER BY at) AS n FROM input",
        "SELECT CASE WHEN ms > 800 THEN 'slow' END AS pace, try_cast(ms AS STRING) AS s FROM input",
        "SELECT map_filter(map('a', ms), (k, v) -> v > 1) AS m FROM input",
        "SELECT aggregate(tags, '', (acc, x) -> acc || x) AS t FROM input",
        "SELECT window.start, count(*) AS n FROM input GROUP BY window(at, '1 minute')",
        "SELECT inline(array(struct(ms AS a, page AS b))) FROM input",
        "FROM input |> WHERE ms > 1",
    ],
)
def test_queries_that_are_right_pass(query: str) -> None:
    assert told({"sql": query}) == ""


def test_what_cannot_be_known_passes() -> None:
    assert told({"filter": "anything > 1"}, source={"type": "topic", "topics": "clicks"}) == ""
    assert told({"python": "mine:clean"}, {"filter": "anything > 1"}) == ""
    assert told({"sql": "SELECT count(*), page FROM input"}, {"filter": "anything > 1"}) == ""


def test_functions_in_python_may_add_what_the_sink_names() -> None:
    from barnabas.pipelines import Pipeline

    Pipeline(source=SOURCE, sink={"type": "topic", "topic": "out", "key": "made_later"})
