from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.spark.context.connectivity_checks import FileMissing, check_files
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document


def reading(path: str) -> PipelineSpec:
    source = {"type": "files", "path": path, "format": "text"}
    return load_document({"name": "p", "source": source, "sink": {"type": "console"}})


def test_missing_files_are_reported_before_spark_starts(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    for given in (str(missing), f"file:{missing}", f"file://{missing}"):
        with pytest.raises(
            FileMissing, match=r"source\.path: there is no file or directory .*nothing"
        ) as caught:
            check_files(reading(given), "local[*]")
        assert caught.value.path == ("source",)
    missing.mkdir()
    check_files(reading(str(missing)), "local[*]")


@pytest.mark.parametrize("path", ["nowhere/*.json", "nowhere/{a,b}", "s3a://bucket/nowhere"])
def test_patterns_and_addresses_are_left_to_spark(path: str) -> None:
    check_files(reading(path), "local[*]")


def test_a_spark_elsewhere_may_see_other_files(tmp_path: Path) -> None:
    check_files(reading(str(tmp_path / "nothing")), "yarn")
    check_files(reading(str(tmp_path / "nothing")), "k8s://https://host:6443")


def test_the_side_of_a_join_is_looked_at_too(tmp_path: Path) -> None:
    side = {"type": "files", "path": str(tmp_path / "nothing"), "format": "text"}
    join = {"type": "join", "on": "value", "source": side}
    document = {"name": "p", "source": {"type": "rate"}, "transforms": [join], "sink": {"type": "console"}}
    with pytest.raises(FileMissing, match=r"transforms\.0\.source\.path: "):
        check_files(load_document(document), "local[2]")
