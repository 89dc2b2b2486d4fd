"""Metrics in docs/METRICS.md: rendered from the source, complete, and each with a test of its value."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
TOOL = REPOSITORY / "tools" / "render_metrics.py"


BY_ATTRIBUTE = {
    "barnabas_network_connections_rejected_total": (
        "scenario/network/test_network_lifetime.py", "counters.rejected[Rejected.PER_IP].value == 1",
    ),
    "barnabas_network_tls_handshakes_total": (
        "scenario/network/test_tls.py", "counters.handshakes.value == 1",
    ),
    "barnabas_network_tls_handshake_failures_total": (
        "scenario/network/test_tls.py", 'tls.failures("not_tls") == 3',
    ),
    "barnabas_purgatory_expired_total": (
        "unit/purgatory/test_purgatory.py", "purgatory.expired.value == 1",
    ),
    "barnabas_purgatory_watched": (
        "unit/purgatory/test_purgatory.py", "(purgatory.watched, purgatory.pending) == (2, 1)",
    ),
    "kafka_isr_expands_total": (
        "unit/replication/leader/test_isr_changes.py", "isr.expands.value == 1",
    ),
    "kafka_isr_shrinks_total": (
        "unit/replication/leader/test_isr_changes.py", "isr.shrinks.value == 1",
    ),
    "kafka_failed_isr_updates_total": (
        "unit/replication/leader/test_isr_changes.py", "isr.failed.value == 1",
    ),
    "kafka_network_memory_pool_used": (
        "scenario/network/test_request_memory.py", "memory.used_bytes == 4 * MIB",
    ),
    "kafka_network_memory_pool_waiting": (
        "scenario/network/test_request_memory.py", "len(memory._line) == 3",
    ),
    "kafka_replica_fetcher_failed_partitions": (
        "unit/replication/follower/test_replica_fetcher.py", "fetcher.failed_count == 1",
    ),
    "kafka_replication_bytes_in_total": (
        "scenario/replication/test_following.py",
        "[each.replication_bytes_in.value for each in counters] == [0, size_bytes, size_bytes]",
    ),
    "kafka_replication_bytes_out_total": (
        "scenario/replication/test_following.py", "replication_bytes_out.value == 2 * size_bytes",
    ),
}  # fmt: skip
"""Metrics whose value a test reads where it is counted, not on the page."""


@cache
def rows() -> list[Any]:
    found: list[Any] = runpy.run_path(str(TOOL))["rows"]()
    return found


def test_the_page_is_rendered_from_the_source() -> None:
    command = [sys.executable, str(TOOL), "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_have_prometheus_form() -> None:
    listed = rows()
    assert len(listed) > 100
    for row in listed:
        assert re.fullmatch(r"(kafka|barnabas|process|python)(_[a-z0-9]+)+", row.name)
        assert (row.kind == "counter") == row.name.endswith("_total")
        assert row.doc.endswith("."), row.name


def test_every_metric_is_read_by_a_test() -> None:
    own = {Path(__file__), REPOSITORY / "tests/unit/docs"}
    files = [path for path in (REPOSITORY / "tests").rglob("*.py") if not own & {path, *path.parents}]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    words = set(re.findall(r"\w+", text))
    known = {re.sub(r"_(count|sum|bucket)$", "", word) for word in words} | words
    assert {row.name for row in rows() if row.name not in known} == set(BY_ATTRIBUTE)
    for name, (path, asserted) in BY_ATTRIBUTE.items():
        assert asserted in (REPOSITORY / "tests" / path).read_text(encoding="utf-8"), name
