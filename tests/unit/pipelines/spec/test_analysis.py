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
    assert told({"sql": query}, source={**SOURCE, "watermark": "at 1 minute"}) == ""


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT user, page, count(*) AS n FROM input GROUP BY user", "page"),
        ("SELECT page, count(*) AS n FROM input", "page"),
        ("SELECT user AS name, sum(ms) AS s FROM input GROUP BY page", "user"),
    ],
)
def test_a_column_beside_an_aggregate_is_grouped_or_aggregated(query: str, name: str) -> None:
    source = {**SOURCE, "watermark": "at 1 minute"}
    assert f"{name!r} is neither grouped nor aggregated" in told({"sql": query}, source=source)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user, count(*) AS n FROM input GROUP BY 1",
        "SELECT user AS u, count(*) AS n FROM input GROUP BY u",
        "SELECT USER, count(*) AS n FROM input GROUP BY user",
        "SELECT user, page, count(*) AS n FROM input GROUP BY ALL",
        "SELECT user, page, count(*) AS n FROM input GROUP BY CUBE (user, page)",
        "SELECT user, max(ms) OVER (PARTITION BY page) AS m FROM input",
        "SELECT upper(user) AS u, count(*) AS n FROM input GROUP BY upper(user)",
        "SELECT window, count(*) AS n FROM input GROUP BY window(at, '1 minute')",
        "SELECT first(user) AS user, count(*) AS n FROM input GROUP BY page",
        "SELECT aggregate(tags, 0, (acc, x) -> acc + 1) AS n, user FROM input",
    ],
)
def test_groupings_that_are_right_pass(query: str) -> None:
    assert told({"sql": query}, source={**SOURCE, "watermark": "at 1 minute"}) == ""


def test_an_aggregation_of_a_stream_needs_a_watermark() -> None:
    query = "SELECT page, count(*) AS n FROM input GROUP BY page"
    assert "an aggregation never ends" in told({"sql": query})
    assert "an aggregation never ends" in told({"filter": "ms > 1"}, {"sql": query})
    assert told({"sql": "SELECT user, count(*) OVER (PARTITION BY page) AS n FROM input"}) == ""
    windowed = {"type": "window", "time": "at", "size": "1 minute", "group_by": ["page"]}
    assert told(windowed, {"sql": "SELECT max(count) AS n FROM input"}) == ""


def test_what_cannot_be_known_passes() -> None:
    assert told({"filter": "anything > 1"}, source={"type": "topic", "topics": "clicks"}) == ""
    assert told({"python": "mine:clean"}, {"filter": "anything > 1"}) == ""
    assert told({"sql": "SELECT upper(page), user FROM input"}, {"filter": "anything > 1"}) == ""


def test_functions_in_python_may_add_what_the_sink_names() -> None:
    from barnabas.pipelines import Pipeline

    Pipeline(source=SOURCE, sink={"type": "topic", "topic": "out", "key": "made_later"})
