"""Topic source: decoded records of topics."""

from __future__ import annotations

from barnabas.pipelines.spark.context.connector import read_records
from barnabas.pipelines.spark.context.run_context import Rows, Run
from barnabas.pipelines.spark.formats.decoding import decode
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    def samples(count: int) -> list[bytes]:
        rows = (
            read_records(part, run, streaming=False).select("value").where("value IS NOT NULL").limit(count)
        )
        return [bytes(row.value) for row in rows.collect()]

    records = read_records(part, run, streaming=streaming)
    rows = decode(records, part, run, samples)
    return Rows(with_watermark(rows.good, part), rows.bad)
