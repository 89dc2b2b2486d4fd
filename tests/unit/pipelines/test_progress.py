from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from barnabas.pipelines.service.checkpoints import committed_offsets
from barnabas.pipelines.state.progress import Progress, behind_ms, progress_line, progress_of, sink_line

REPORT = {
    "batchId": 4,
    "numInputRows": 120,
    "processedRowsPerSecond": float("nan"),
    "durationMs": {"triggerExecution": 250},
    "observedMetrics": {"decoded": {"records": 60, "errors": 3}},
    "sources": [
        {"endOffset": '{"clicks": {"0": 5, "1": 7}}', "latestOffset": '{"clicks": {"0": 9, "1": 7}}'},
    ],
}


def test_a_report_of_spark_becomes_progress_with_lag() -> None:
    progress = progress_of("p", REPORT)
    assert (progress.records, progress.errors, progress.lag, progress.batch_ms) == (60, 3, 4, 250)
    assert progress.error_ratio == 0.05
    assert progress.records_per_second == 0
    assert Progress.of_document(progress.to_document()) == progress


def test_a_source_without_offsets_has_no_lag() -> None:
    progress = progress_of("p", {"sources": [{"endOffset": "17", "latestOffset": None}]})
    assert progress.lag is None
    assert progress.offsets == {}


def test_the_line_for_a_terminal_leaves_out_what_is_not_known() -> None:
    assert progress_line(Progress("p", 1, 1_200, 4_100.0, 292, 0, None, {}), 14_000) == (
        "p  batch 1  1,200 records (4,100/s, 292 ms)  total 14,000"
    )
    assert "lag 4  bad 3" in progress_line(progress_of("p", REPORT), 0)


def test_a_checkpoint_tells_the_offsets_of_the_last_finished_batch(tmp_path: Path) -> None:
    assert committed_offsets(str(tmp_path)) == {}
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch in range(12):
        (tmp_path / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchWatermarkMs":0}}\n{{"t": {{"0": {batch}}}}}'
        )
    for batch in range(11):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    (tmp_path / "commits" / ".10.crc").write_text("")
    assert committed_offsets(str(tmp_path)) == {"t": {"0": 10}}


def test_a_table_shows_its_size_and_the_lag_in_time() -> None:
    sink = {
        "format": "delta", "version": "12", "rows": 1_200, "files": 3, "bytes": 4_718_592,
        "committed_at_ms": 95_000, "newest_ms": 90_000,
    }  # fmt: skip
    progress = replace(progress_of("orders", {}), sink=sink)
    assert sink_line(progress, 7, 100_000) == (
        "delta table, version 12  1,200 rows in 3 files (4.5 MB)  last commit 5 s ago  10 s behind"
    )
    assert (behind_ms(progress, 0, 100_000), behind_ms(progress, None, 100_000)) == (0, None)
    assert sink_line(progress_of("orders", {}), 0, 0) is None
    assert Progress.of_document(progress.to_document()) == progress


def test_the_lines_are_those_that_the_page_of_tables_shows() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "TABLES.md").read_text(encoding="utf-8")
    sink = {
        "format": "delta", "version": "12", "rows": 14_000, "files": 9, "bytes": 3_250_586,
        "committed_at_ms": 95_000, "newest_ms": 90_000,
    }  # fmt: skip
    shown = replace(Progress("orders", 7, 1_200, 4_100.0, 292, 0, 0, {}), sink=sink)
    expected = f"{progress_line(shown, 14_000)}\n{sink_line(shown, 0, 100_000)}\n"
    assert f"orders is RUNNING (exactly-once)\n{expected}```" in page
