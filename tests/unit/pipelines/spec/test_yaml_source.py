"""Keys of a spec are the text in the file, also where PyYAML would make booleans or numbers of them."""

from __future__ import annotations

import pytest

from barnabas.pipelines.spec.validation import load
from barnabas.pipelines.spec.yaml_source import read_yaml

JOIN = """
name: enrich
source: {type: topic, topics: [orders], schema: "id INT, customer STRING"}
transforms:
  - type: join
    source: {type: topic, topics: [customers], schema: "customer STRING, tier STRING"}
    on: customer
    how: left
sink: {type: topic, topic: enriched, key: [id]}
"""


def test_a_join_names_its_columns_without_quotes() -> None:
    (join,) = load(read_yaml(JOIN, "join.yaml")).transforms
    assert join["on"] == ["customer"]


@pytest.mark.parametrize("key", ["on", "off", "yes", "no", "true", "1", "null", "2024-01-01"])
def test_a_key_is_its_text(key: str) -> None:
    assert read_yaml(f"{key}: 1").document == {key: 1}
