"""Graph of a pipeline: stages, edges, and no passwords."""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.spec.graph import TEXT_MAX, Graph, graph_of
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Kind
from barnabas.pipelines.spec.validation import load_document


def graph(**more: Any) -> Graph:
    document = {
        "name": "clean",
        "source": {"type": "topic", "topics": ["clicks"], "schema": "user STRING, ms INT"},
        "sink": {"type": "topic", "topic": "cleaned"},
    }
    return graph_of(load_document({**document, **more}))


def kinds(found: Graph) -> list[str]:
    return [f"{each.kind}: {each.title}" for each in found.stages]


def test_stages_stand_in_the_order_of_the_data() -> None:
    found = graph(transforms=[{"filter": "ms  >\n 5"}, {"MaskField": "user"}])
    assert kinds(found) == ["source: clicks", "transform: ms > 5", "transform: user", "sink: cleaned"]
    assert found.edges == ((0, 1), (1, 2), (2, 3))
    assert found.group_id == "pipeline-clean"
    assert found.stages[0].settings == {"topics": "clicks", "schema": "user STRING, ms INT"}
    assert [each.topics for each in found.stages] == [("clicks",), (), (), ("cleaned",)]


def test_the_other_source_of_a_join_leads_into_the_join() -> None:
    other = {"type": "topic", "topics": ["people"], "schema": "user STRING"}
    found = graph(transforms=[{"filter": "ms > 5"}, {"type": "join", "source": other, "on": "user"}])
    assert [each.kind for each in found.stages] == ["source", "transform", "source", "transform", "sink"]
    assert set(found.edges) == {(0, 1), (1, 3), (2, 3), (3, 4)}


def test_dead_letters_come_from_every_stage_that_reads_writes_or_changes_records() -> None:
    other = {"type": "topic", "topics": ["people"], "schema": "user STRING"}
    errors = {"dead_letter_topic": "bad", "tolerance": "all", "max_error_ratio": 0.5}
    found = graph(transforms=[{"type": "join", "source": other, "on": "user"}], errors=errors)
    assert [each.kind for each in found.stages] == ["source", "source", "transform", "sink", "dead letters"]
    assert (found.stages[4].topics, found.stages[4].settings) == (("bad",), {"max_error_ratio": "0.5"})
    assert [each for each in found.edges if each[1] == 4] == [(0, 4), (2, 4), (3, 4)]


def test_stages_tell_no_secrets_and_no_novels() -> None:
    sink = {
        "type": "jdbc",
        "url": "postgresql://host/db?password=${env:PG}",
        "table": "t",
        "password": "${env:PG}",
        "key": ["user"],
    }
    found = graph(sink=sink, transforms=[{"sql": f"SELECT user, '{'u' * 2_000}' AS long FROM input"}])
    assert found.stages[-1].settings["password"] == "(set)"
    assert len(found.stages[1].title) == TEXT_MAX
    assert found.group_id == "pipeline-clean"


def test_topics_of_another_cluster_are_marked() -> None:
    source = {"type": "topic", "topics": ["clicks"], "bootstrap": ["far:9092"], "schema": "user STRING"}
    found = graph(source=source, errors={"tolerance": "all", "dead_letter_topic": "bad"})
    assert [each.is_foreign for each in found.stages] == [True, False, False]
    assert graph(source={"type": "rate"}).group_id is None


def test_a_join_is_the_only_stage_with_a_source_inside() -> None:
    parts = {
        (kind, name, option.name)
        for kind, plugins in CATALOGUE.items()
        for name, plugin in plugins.items()
        for option in plugin.options
        if option.kind is Kind.PART
    }
    assert parts == {("transform", "join", "source")}
