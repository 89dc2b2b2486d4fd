from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import barnabas
from barnabas.pipelines.spec.model import Delivery, Tolerance
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.sections import ERRORS, RESTART, SPARK, TOP
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load, load_document
from barnabas.pipelines.spec.yaml_source import UnreadableSpec, read_yaml

USEFUL = """
    name: clean-clicks
    source:
      type: topic
      topics: [clicks]
      schema: user STRING, url STRING, at TIMESTAMP
    transforms:
      - filter: url IS NOT NULL
    sink:
      type: files
      path: lake/clicks
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        load(read_yaml(textwrap.dedent(text), "p.yaml"))
    return str(caught.value).splitlines()


def test_a_useful_pipeline_takes_ten_lines() -> None:
    assert len(textwrap.dedent(USEFUL).strip().splitlines()) == 10
    spec = load(read_yaml(textwrap.dedent(USEFUL)))
    assert spec.name == "clean-clicks"
    assert spec.source["topics"] == ["clicks"]
    assert spec.source["format"] == "json"
    assert spec.transforms[0].type == "filter"
    assert spec.transforms[0]["where"] == "url IS NOT NULL"
    assert spec.guarantee is Delivery.EXACTLY_ONCE
    assert spec.errors.tolerance is Tolerance.NONE


def test_a_spec_survives_the_way_through_a_document() -> None:
    spec = load(read_yaml(textwrap.dedent(USEFUL) + "trigger: 10 seconds\nrestart: {max_attempts: 2}\n"))
    assert load_document(spec.to_document()) == spec
    assert spec.trigger.interval_ms == 10_000
    joined = load_document(
        {
            "name": "j",
            "source": {"type": "rate"},
            "transforms": [
                {"type": "join", "on": "value", "source": {"type": "files", "path": "x", "format": "text"}}
            ],
            "sink": {"type": "console"},
        }
    )
    assert load_document(joined.to_document()) == joined


def test_every_mistake_has_its_line_the_found_and_the_expected_value() -> None:
    found = problems(
        """
        name: a/b
        source:
          type: topic
          topcis: [clicks]
          format: jsn
          max_offsets_per_trigger: lots
        transforms:
          - InsertFeld: {static_field: a}
          - {type: window, time: at, size: 3 fortnights}
        sink:
          type: postgres
        trigger: sometimes
        """
    )
    assert found == [
        "p.yaml:2: name: found 'a/b'; expected letters, digits, '.', '_' and '-'",
        "p.yaml:5: source.topcis: source topic has no option 'topcis'; did you mean 'topics'?",
        (
            "p.yaml:6: source.format: found 'jsn'; expected one of json, avro, protobuf, csv, text, raw;"
            " did you mean 'json'?"
        ),
        "p.yaml:7: source.max_offsets_per_trigger: found 'lots'; expected a whole number, at least 1",
        "p.yaml:9: transforms.0: there is no transform 'InsertFeld'; did you mean 'InsertField'?",
        "p.yaml:10: transforms.1.size: found '3 fortnights'; expected a duration such as '10 seconds'",
        ("p.yaml:12: sink.type: there is no sink 'postgres'; did you mean 'jdbc'?"),
        "p.yaml:13: trigger: found 'sometimes'; expected a duration such as '10 seconds', or available_now",
    ]


@pytest.mark.parametrize("name", ["x.task-0", "x.task-12"])
def test_a_name_like_that_of_a_task_is_refused(name: str) -> None:
    """The tasks of pipeline x have the transactional ids that pipelines of these names would have."""
    found = problems(f"name: {name}\nsource: {{type: rate}}\nsink: {{type: console}}\n")
    assert found == [f"p.yaml:1: name: found '{name}'; a name must not end in .task-<n>, like a task"]


def test_what_is_missing_is_named() -> None:
    assert problems("name: x\nsource: {type: topic, topics: a}\n") == [
        "p.yaml:1: a pipeline needs 'sink' (a section of its own): Destination of the rows."
    ]
    (complaint,) = problems("name: x\nsource: {type: topic}\nsink: {type: console}\n")
    assert complaint.startswith("p.yaml:2: source: a topic source takes exactly one of 'topics', 'pattern'")


def test_parts_that_exclude_each_other_are_reported() -> None:
    base = "name: x\nsource: {type: topic, topics: a}\n"
    (complaint,) = problems(base + "sink: {type: console}\ndelivery: exactly-once\n")
    assert complaint.startswith("p.yaml:4: delivery: sink console cannot deliver exactly once")
    (complaint,) = problems(base + "sink: {type: console}\nerrors: {dead_letter_topic: d}\n")
    assert "expected tolerance: all" in complaint
    (complaint,) = problems(
        base
        + "transforms: [{type: window, time: t, size: 1 minute, emit: updates}]\n"
        + "sink: {type: files, path: x}\n"
    )
    assert "only adds rows" in complaint


def test_segments_are_for_bounded_runs_with_a_manifest() -> None:
    base = "name: x\nsource: {type: topic, topics: a%s}\nsink: {type: console}\n"
    assert problems(base % "" + "engine: segments\n") == [
        "p.yaml:2: source: engine segments needs 'manifest': the file that `barnabas log manifest` writes",
        (
            "p.yaml:4: engine: engine segments reads closed files and then ends; expected trigger:"
            " available_now (afterwards, engine: auto continues where the files end)"
        ),
    ]
    assert problems(base % ", manifest: m.json" + "engine: auto\n") == [
        "p.yaml:2: source.manifest: only engine: segments reads a manifest"
    ]
    assert problems(
        "name: x\nsource: {type: rate}\nsink: {type: console}\nengine: segments\ntrigger: once\n"
    ) == ["p.yaml:4: engine: segments reads topics, not rate; expected auto"]
    fine = base % ", manifest: m.json" + "engine: segments\ntrigger: available_now\n"
    assert load(read_yaml(fine)).source["manifest"] == "m.json"


def test_a_secret_in_the_open_is_refused() -> None:
    (complaint,) = problems(
        "name: x\nsource: {type: rate}\n"
        "sink: {type: jdbc, url: 'postgresql://h/d', table: t, key: id, password: hunter2}\n"
    )
    assert "expected a reference: ${env:NAME}" in complaint
    assert "hunter2" not in complaint


def test_a_reference_may_stand_for_any_value() -> None:
    spec = load_document(
        {
            "name": "x",
            "source": {"type": "rate", "rows_per_second": "${env:RATE}"},
            "sink": {"type": "console"},
        }
    )
    assert spec.source["rows_per_second"] == "${env:RATE}"


SLIPS = [None, 7, 1.5, True, "x", "", [], {}, [1], [[1]], [None], {"a": 1}, [{"a": [1]}], "${env:T}"]
WHOLE: dict[str, dict[str, object]] = {
    "topic": {"topics": ["c"], "schema": "a STRING"},
    "files": {"path": "x", "format": "json", "schema": "a STRING"},
}


def documents_with_slips() -> Iterator[dict[str, object]]:
    """Every option of every part, with a value of every shape."""
    whole: dict[str, object] = {
        "name": "p",
        "source": {"type": "topic", **WHOLE["topic"]},
        "sink": {"type": "topic", "topic": "o"},
    }
    for slip in SLIPS:
        for row in TOP:
            yield {**whole, row.name: slip}
        for section, rows in (("errors", ERRORS), ("restart", RESTART), ("spark", SPARK)):
            yield from ({**whole, section: {row.name: slip}} for row in rows)
        for plugin in CATALOGUE["source"].values():
            for row in plugin.options:
                part = {"type": plugin.name, **WHOLE.get(plugin.name, {}), row.name: slip}
                yield {**whole, "source": part}
        for plugin in CATALOGUE["sink"].values():
            yield from ({**whole, "sink": {"type": plugin.name, row.name: slip}} for row in plugin.options)
        for plugin in CATALOGUE["transform"].values():
            yield {**whole, "transforms": [{plugin.name: slip}]}
            for row in plugin.options:
                yield {**whole, "transforms": [{"type": plugin.name, row.name: slip}]}


def test_a_value_of_any_shape_anywhere_is_accepted_or_reported() -> None:
    for document in documents_with_slips():
        try:
            with suppress(InvalidSpec):
                load_document(document)
        except Exception as error:
            raise AssertionError(f"{document} is answered with {error!r}") from error


def test_an_option_with_nothing_behind_it_is_missing() -> None:
    (complaint,) = problems(USEFUL.replace("filter: url IS NOT NULL", "filter:"))
    assert complaint.startswith("p.yaml:8: transforms.0: transform filter needs 'where'")
    (complaint,) = problems(USEFUL.replace("name: clean-clicks", "name:"))
    assert "a pipeline needs 'name'" in complaint


def test_a_reference_is_no_topic_and_no_word_that_steers_the_pipeline() -> None:
    wanted = (
        "p.yaml:5: source.topics: found the reference '${env:TOPIC}'; expected the topic's name, written out"
    )
    for given in ("${env:TOPIC}", "['${env:TOPIC}']"):
        assert problems(USEFUL.replace("[clicks]", given)) == [wanted]
    sink = "type: topic\n      topic: ${env:TOPIC}"
    (complaint,) = problems(USEFUL.replace("type: files\n      path: lake/clicks", sink))
    assert "sink.topic: found the reference" in complaint
    (complaint,) = problems(textwrap.dedent(USEFUL) + "delivery: ${env:HOW}\n")
    assert "found the reference '${env:HOW}'; expected" in complaint
    assert complaint.endswith("written out")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("id STIRNG", "column id: 'STIRNG' is not a type; did you mean STRING?"),
        ("id", "'id' is not `name TYPE`"),
        ("a ARRAY<INT, INT>", "column a: ARRAY takes one type, not 'INT, INT'"),
        ("a STRUCT<b: INTT>", "column a.b: 'INTT' is not a type; did you mean INT?"),
    ],
)
def test_a_schema_is_judged_without_spark(schema: str, complaint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        load_document(
            {
                "name": "x",
                "source": {"type": "topic", "topics": "a", "schema": schema},
                "sink": {"type": "console"},
            }
        )
    assert str(caught.value) == f"<spec>: source.schema: {complaint}"


def test_schemas_of_all_shapes_pass() -> None:
    text = (
        "a BIGINT NOT NULL, `b c` DECIMAL(10, 2),"
        " d MAP<STRING, ARRAY<STRUCT<e: INT, f: DATE>>> COMMENT 'x, y'"
    )
    load_document(
        {"name": "x", "source": {"type": "topic", "topics": "a", "schema": text}, "sink": {"type": "console"}}
    )


def test_invalid_yaml_and_duplicate_keys_are_reported_with_their_line() -> None:
    with pytest.raises(UnreadableSpec, match=r"p\.yaml:3: not YAML"):
        read_yaml("name: x\nsource: [\n", "p.yaml")
    with pytest.raises(UnreadableSpec, match=r"p\.yaml:2: duplicate key 'name'"):
        read_yaml("name: x\nname: y\n", "p.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "name: \0",
        "a: &x [1, *x]\n",
        "[" * 5_000,
        "at: 2001-99-99",
        "a: &a [1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 8)}]\n"
            for old, new in zip("abcdef", "bcdefg", strict=True)
        ),
    ],
    ids=["character", "alias of itself", "depth", "date", "aliases of aliases"],
)
def test_any_text_is_a_document_or_a_complaint(text: str) -> None:
    with pytest.raises(UnreadableSpec, match=r"p\.yaml"):
        read_yaml(text, "p.yaml")


def test_judging_a_spec_imports_no_spark() -> None:
    code = (
        "import sys; from barnabas.pipelines.spec.validation import load_document;"
        "load_document({'name': 'x', 'source': {'type': 'rate'}, 'sink': {'type': 'console'}});"
        "sys.exit('pyspark' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(barnabas.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.parametrize("command", ["validate", "run", "start"])
def test_a_command_answers_a_mistake_with_none_of_the_heavy_packages(command: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: p\nsource: {type: rat}\nsink: {type: console}\n")
    code = (
        "import sys; from barnabas.cli.main import cli\n"
        f"try: cli(['pipeline', {command!r}, {str(file)!r}])\n"
        "finally: print(sorted({'pyspark', 'numpy', 'pyarrow', 'pandas', 'starlette'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(barnabas.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "[]\n")
    assert ended.stderr == f"{file}:2: source.type: there is no source 'rat'; did you mean 'rate'?\n"


@pytest.mark.parametrize(
    ("transform", "complaint"),
    [
        ({"filter": "url IS NOT (NULL"}, "a '(' is not closed, in 'url IS NOT (NULL'"),
        ({"filter": "size(tags)) > 1"}, "a ')' closes what was not opened"),
        ({"filter": "url = 'x"}, "a ' opens and does not close"),
        ({"sql": "SELECT * FROM inptu"}, "expected SELECT … FROM input …"),
        ({"sql": "url IS NOT NULL"}, "is not a query; expected SELECT … FROM input …"),
        (
            {"type": "window", "time": "at", "size": "1 s", "aggregates": {"n": "count("}},
            "aggregates.n: a '(' is not closed",
        ),
        ({"type": "ReplaceField", "renames": ["a:b", "c"]}, "found 'c'; expected pairs such as 'old:new'"),
        ({"python": "mymodule"}, "expected module:function"),
        ({"fliter": "x"}, "did you mean 'filter'?"),
        ({"Fliter": "x"}, "did you mean 'Filter'?"),
    ],
)
def test_a_mistake_in_a_transform_is_reported_without_spark(
    transform: dict[str, object], complaint: str
) -> None:
    document = {
        "name": "p",
        "source": {"type": "rate"},
        "transforms": [transform],
        "sink": {"type": "console"},
    }
    with pytest.raises(InvalidSpec, match=re.escape(complaint)):
        load_document(document)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ')' AS a, \"(\" AS b, `c(` FROM input -- (not counted",
        "WITH x AS (SELECT * FROM `input`) SELECT x.tags[0], 'it''s', 'it\\'s', r'C:\\' FROM x /* ( */",
        "FROM input |> WHERE id > 1",
        "(SELECT 1 FROM INPUT)",
    ],
)
def test_sql_of_all_shapes_passes(query: str) -> None:
    document = {
        "name": "p",
        "source": {"type": "topic", "topics": "t", "schema": "id INT, tags ARRAY<STRING>, `c(` INT"},
        "transforms": [{"sql": query}],
        "sink": {"type": "console"},
    }
    assert load_document(document).transforms[0]["query"] == query


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (
            {"starting_offsets": "earlist"},
            (
                "source.starting_offsets: found 'earlist'; expected earliest, latest, or JSON such as"
                """ {"topic": {"0": 23, "1": -2}}; did you mean 'earliest'?"""
            ),
        ),
        ({"starting_offsets": '{"a": {"0": }}'}, "which is not JSON (Expecting value"),
        ({"starting_offsets": '{"a": {"zero": 1}}'}, 'expected earliest, latest, or JSON such as {"topic"'),
        ({"watermark": "at"}, "source.watermark: found 'at'; expected `<column> <delay>`, such as"),
        ({"watermark": "10 minutes"}, "source.watermark: found '10 minutes'; expected `<column> <delay>`"),
        ({"topics": None, "pattern": "a(b"}, "source.pattern: found 'a(b'; expected a regular expression:"),
        (
            {"topics": None, "assign": "a:0"},
            'which is not JSON (Expecting value: line 1 column 1 (char 0)); expected JSON such as {"topic":',
        ),
    ],
)
def test_texts_with_a_form_are_judged_without_spark(option: dict[str, object], complaint: str) -> None:
    source = {"type": "topic", "topics": "a", "format": "text", **option}
    with pytest.raises(InvalidSpec, match=re.escape(complaint)):
        load_document({"name": "p", "source": source, "sink": {"type": "console"}})


@pytest.mark.parametrize(
    "option",
    [
        {"starting_offsets": '{"a": {"0": -2, "1": 7}}'},
        {"watermark": "at 1 hour 30 minutes"},
        {"topics": None, "pattern": r"\p{Alpha}+"},
        {"topics": None, "assign": '{"a": [0, 1]}'},
    ],
)
def test_texts_of_the_right_form_pass(option: dict[str, object]) -> None:
    source = {"type": "topic", "topics": "a", "format": "text", **option}
    load_document({"name": "p", "source": source, "sink": {"type": "console"}})


def test_invalid_topics_and_cycles_are_reported() -> None:
    source = {"type": "topic", "topics": ["a", "no good"], "format": "text"}
    with pytest.raises(InvalidSpec, match="topic name 'no good' has characters other than"):
        load_document({"name": "p", "source": source, "sink": {"type": "console"}})
    source = {"type": "topic", "topics": ["a"], "format": "text"}
    with pytest.raises(InvalidSpec, match="would read its own output, 'a', for ever"):
        load_document({"name": "p", "source": source, "sink": {"type": "topic", "topic": "a"}})
    errors = {"tolerance": "all", "dead_letter_topic": "a"}
    with pytest.raises(InvalidSpec, match="would read its own dead letters, 'a', for ever"):
        load_document({"name": "p", "source": source, "sink": {"type": "console"}, "errors": errors})
    elsewhere = {"type": "topic", "topic": "a", "bootstrap": "other:9092"}
    assert load_document({"name": "p", "source": source, "sink": elsewhere}).sink["topic"] == "a"


MASTERS = (
    "local", "local[*]", "local[2]", "local[2,4]", "local-cluster[2,1,1024]", "yarn", "spark://host:7077",
    "k8s://https://host:443", "${env:MASTER}",
)  # fmt: skip


@pytest.mark.parametrize("master", MASTERS)
def test_the_masters_that_spark_knows_pass(master: str) -> None:
    assert load_document(with_master(master)).spark.master == master


def test_an_unknown_master_is_reported() -> None:
    with pytest.raises(InvalidSpec, match=re.escape("found 'locl[2]'; expected local[*]")):
        load_document(with_master("locl[2]"))


def with_master(master: str) -> dict[str, object]:
    return {
        "name": "p",
        "source": {"type": "rate"},
        "sink": {"type": "console"},
        "spark": {"master": master},
    }


def test_all_invalid_types_of_a_schema_are_reported_at_once() -> None:
    (line,) = problems(USEFUL.replace("user STRING, url STRING", "user STIRNG, url STRUCT<a INTT, b STRING>"))
    assert line == (
        "p.yaml:6: source.schema: column user: 'STIRNG' is not a type; did you mean STRING?;"
        " column url.a: 'INTT' is not a type; did you mean INT?"
    )


def test_what_others_call_a_kind_is_understood_as_a_slip() -> None:
    assert problems(USEFUL.replace("type: topic", "type: kafka")) == [
        "p.yaml:4: source.type: there is no source 'kafka'; did you mean 'topic'?"
    ]
    assert problems(USEFUL.replace("type: files", "type: parquet")) == [
        "p.yaml:10: sink.type: there is no sink 'parquet'; did you mean 'files'?"
    ]


def test_brokers_may_stand_in_a_source_under_kafkas_name() -> None:
    for given in ("a:1,b:2", "[a:1, b:2]"):
        text = USEFUL.replace("topics: [clicks]", f"topics: [clicks]\n      bootstrap.servers: {given}")
        assert load(read_yaml(textwrap.dedent(text))).source["bootstrap"] == ["a:1", "b:2"]


def test_only_known_databases_are_taken() -> None:
    sink = "type: jdbc\n      url: jdbc:oracle://root:secret@db/shop\n      table: t\n      mode: insert\n"
    (line,) = problems(USEFUL.replace("type: files\n      path: lake/clicks", sink))
    assert line == (
        "p.yaml:11: sink.url: found 'oracle://…'; expected postgresql://host:port/database,"
        " mysql://host:port/database or sqlite:path"
    )


@pytest.mark.parametrize("host", ["db", "${env:HOST}"])
@pytest.mark.parametrize("part", ["source", "sink"])
def test_a_password_in_an_address_is_refused_and_not_shown(host: str, part: str) -> None:
    topic = {"type": "topic", "topics": "s"} if part == "sink" else {"type": "topic", "topic": "s"}
    jdbc = {"type": "jdbc", "url": f"postgresql://shop:hunter2@{host}/shop", "table": "t"}
    jdbc |= {"mode": "insert"} if part == "sink" else {"column": "id"}
    parts = {"source": topic, "sink": jdbc} if part == "sink" else {"source": jdbc, "sink": topic}
    with pytest.raises(InvalidSpec, match="found a password in plain text in the address") as caught:
        load_document({"name": "p", **parts})
    assert "hunter2" not in str(caught.value)
