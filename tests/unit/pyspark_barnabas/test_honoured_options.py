"""Client settings of the connector: every setting that is listed as honoured has an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.security import settings as security_settings
from pyspark_barnabas.shared.options import KAFKA_OPTIONS, OptionError, Options

pytest.importorskip("pyspark", reason="Spark is not installed")

SOURCE = Path(__file__).resolve().parents[3] / "src" / "pyspark_barnabas"
MIB = 1 << 20


def test_every_honoured_setting_is_read() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    tables = text[text.index("KAFKA_OPTIONS: Final") : text.index("class OptionError")]
    body = text.replace(tables, "")
    security = security_settings.OPTIONS | security_settings.CODE_OPTIONS
    own = KAFKA_OPTIONS - security
    assert len(own) > 10
    assert {name for name in own if f'"{name}"' not in body and f'kafka.{name}"' not in body} == set()


@pytest.mark.parametrize(
    ("given", "fetch_bytes"),
    [
        ({}, 4 * MIB),
        ({"kafka.fetch.max.bytes": "1000"}, 1_000),
        ({"kafka.max.partition.fetch.bytes": "900", "kafka.fetch.max.bytes": "1000"}, 900),
    ],
)
def test_the_smaller_limit_of_a_fetch_holds(given: dict[str, str], fetch_bytes: int) -> None:
    from pyspark_barnabas.readers.batch_reader import fetch_options

    assert fetch_options(Options(given)).fetch_bytes == fetch_bytes


@pytest.mark.parametrize(
    ("given", "batch_bytes"),
    [
        ({}, MIB * 15 // 16 - 1_024),
        ({"kafka.batch.size": "5000"}, 5_000),
        ({"kafka.batch.size": "9999999"}, MIB * 15 // 16 - 1_024),
        ({"kafka.acks": "-1", "kafka.max.request.size": "32768"}, 32_768 * 15 // 16 - 1_024),
    ],
)
def test_the_smaller_limit_of_a_batch_holds(given: dict[str, str], batch_bytes: int) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    from pyspark_barnabas.writers.writer import row_options

    schema = StructType([StructField("value", BinaryType())])
    assert row_options(Options({"topic": "t", **given}), schema).batch_bytes == batch_bytes


@pytest.mark.parametrize("acks", ["0", "1", "most"])
def test_acknowledgements_of_all_replicas_are_always_awaited(acks: str) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    from pyspark_barnabas.writers.writer import row_options

    schema = StructType([StructField("value", BinaryType())])
    with pytest.raises(OptionError, match=r"kafka\.acks is always all"):
        row_options(Options({"topic": "t", "kafka.acks": acks}), schema)
