"""From figures to the table: medians, spread, ratio, and where we want to be.

A figure counts as a ratio measured side by side in one run, never as an absolute time.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import confluent_kafka
import plot
from tests.peers.kafka import kafka_version

Samples = dict[str, dict[str, list[float]]]
"""Subject, then figure, then one value a round."""


@dataclass(frozen=True, slots=True)
class Grown:
    """CPU of a subject for one operation, at a small and at a large size of its surroundings."""

    work: str
    unit: str
    subject: str
    sizes: tuple[int, int]
    costs: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    work: str
    unit: str
    more_is_better: bool
    wanted: float | None
    """Barnabas over Apache Kafka: at least this where more is better, at most this elsewhere."""
    limit: float | None = None
    """Upper bound for Barnabas, where that is the goal and not the ratio."""


ROWS = (
    Row("start_s", "start to first acknowledged record", "s", False, 0.1),
    Row("resident_idle_mb", "resident memory, idle", "MB", False, 1 / 6),
    Row("resident_after_mb", "resident memory after produce", "MB", False, 1 / 6),
    Row("produce_1k_mb_s", "produce, 1 KB records, acks=all, librdkafka", "MB/s", True, 1.5),
    Row("produce_1k_cpu_s_gb", "· broker CPU", "s/GB", False, 0.5),
    Row("produce_100b_records_s", "produce, 100 B records, acks=all, librdkafka", "records/s", True, 1.2),
    Row("produce_100b_cpu_us_record", "· broker CPU", "µs/record", False, None),
    Row("requests_1_s", "produce, one record a request, 1 in flight", "requests/s", True, 1.0),
    Row("requests_1_p50_us", "· p50", "µs", False, 0.75),
    Row("requests_1_p99_us", "· p99", "µs", False, 0.5),
    Row("requests_1_cpu_us", "· broker CPU", "µs/request", False, None),
    Row("requests_32_s", "produce, one record a request, 32 in flight", "requests/s", True, 5.0),
    Row("requests_32_p50_us", "· p50", "µs", False, 0.5),
    Row("requests_32_p99_us", "· p99", "µs", False, 0.5),
    Row("requests_32_cpu_us", "· broker CPU", "µs/request", False, None),
    Row("consume_mb_s", "consume from page cache, librdkafka", "MB/s", True, 1.5),
    Row("consume_cpu_s_gb", "· broker CPU", "s/GB", False, 0.5),
    Row("growth_fetch", "fetch from the middle of a log, p50, 1 GB over 100 MB", "times", False, None),
    Row("large_in_mb_s", "produce, 1 MB requests, 5 in flight, raw", "MB/s", True, None),
    Row("large_in_cpu_s_gb", "· broker CPU", "s/GB", False, 0.5),
    Row("large_out_mb_s", "fetch, 1 MB answers, raw", "MB/s", True, None),
    Row("large_out_cpu_s_gb", "· broker CPU", "s/GB", False, 0.5),
    Row("beside_heavy_p50_us", "one-record produce beside a producer of 1 MB batches, p50", "µs", False, 1.5),
    Row("beside_heavy_p99_us", "· p99", "µs", False, None),
    Row("beside_cold_p50_us", "one-record produce beside a reader of cold data, p50", "µs", False, 1.0),
    Row("beside_cold_p99_us", "· p99", "µs", False, 1.0),
    Row("end_to_end_p50_ms", "end to end at 5,000 records/s, p50", "ms", False, 0.5),
    Row("end_to_end_p99_ms", "· p99", "ms", False, 0.5),
    Row("end_to_end_cpu_percent", "· broker CPU", "%", False, None),
    Row("connections_p99_us", "one-record produce beside 1,000 open connections, p99", "µs", False, 1.0),
    Row("group_stable_s", "group of 50: time to stable", "s", False, 1.0),
    Row("commits_s", "offset commits, one after the other", "commits/s", True, 1.0),
    Row("transactions_s", "transactions of 100 records", "transactions/s", True, 1.0),
    Row("partitions_create_s", "1,000 partitions: create", "s", False, 0.5),
    Row("partitions_idle_percent", "· idle CPU", "%", False, 0.5),
    Row("partitions_restart_s", "· restart after kill -9", "s", False, 0.5),
)
CLUSTER_ROWS = (
    Row("cluster_produce_mb_s", "produce, 1 KB records, librdkafka, 6 partitions", "MB/s", True, 1.0),
    Row("cluster_produce_cpu_s_gb", "· CPU of the brokers", "s/GB", False, None),
    Row("cluster_paced_p50_ms", "produce at 2,000 records/s, librdkafka, p50", "ms", False, 1.0),
    Row("cluster_paced_p99_ms", "· p99", "ms", False, 1.0),
    Row("cluster_paced_cpu_percent", "· CPU of the brokers", "%", False, None),
    Row("cluster_requests_1_s", "produce, one record a request, 1 in flight", "requests/s", True, 1.0),
    Row("cluster_requests_1_p50_us", "· p50", "µs", False, 0.6),
    Row("cluster_requests_1_p99_us", "· p99", "µs", False, 1.0),
    Row("cluster_requests_1_cpu_us", "· CPU of the brokers", "µs/request", False, None),
    Row("cluster_requests_32_s", "produce, one record a request, 32 in flight", "requests/s", True, 1.0),
    Row("cluster_requests_32_p50_us", "· p50", "µs", False, None),
    Row("cluster_requests_32_p99_us", "· p99", "µs", False, 1.0),
    Row("cluster_requests_32_cpu_us", "· CPU of the brokers", "µs/request", False, None),
    Row("cluster_large_mb_s", "produce, 1 MB requests, 5 in flight, raw", "MB/s", True, 1.0),
    Row("cluster_large_p99_ms", "· p99", "ms", False, 1.0),
    Row("cluster_large_cpu_s_gb", "· CPU of the brokers", "s/GB", False, None),
    Row("leader_kill_p50_s", "no write possible after kill -9 of the leader, p50", "s", False, 1.0),
    Row("leader_kill_worst_s", "· worst", "s", False, 1.0),
    Row(
        "failover_p50_s",
        "kill -9 of the controller, 2,000 partitions, until all are led, p50",
        "s",
        False,
        1.0,
    ),
    Row("failover_worst_s", "· worst", "s", False, 1.0),
    Row("failover_create_s", "2,000 partitions: create", "s", False, 1.0),
    Row("failover_written_s", "· and a record is written to each of 40", "s", False, 1.0),
    Row("rolling_p99_ms", "rolling restart: produce, p99", "ms", False, 1.0),
    Row("rolling_worst_ms", "· worst", "ms", False, None),
    Row("rolling_errors", "· errors seen by the client", "records", False, None),
    Row("rolling_s", "· length", "s", False, None),
    Row("held_create_s", "10,000 partitions: create", "s", False, 0.5),
    Row("held_idle_percent", "· idle CPU of the brokers", "%", False, 0.5),
    Row("held_resident_mb", "· resident memory of the brokers", "MB", False, None),
    Row("held_produce_s", "· a record to each of 100 of them, and back", "s", False, None),
    Row("held_restart_s", "· one broker back in sync after kill -9", "s", False, 0.5),
)
BEYOND_WRITTEN = "a log of twice the memory, records of 1,000 B, no replication"
BEYOND_READ = "a tenth of it read from its beginning"
HEADLINE_WORKS = (
    "one producer, no replication",
    "one producer, three replicas, asynchronous",
    "one producer, three replicas, synchronous",
    "three producers, three replicas, asynchronous",
    "one consumer",
    "three consumers",
    "a producer and a consumer at once",
    "records of 10 B",
    "records of 100 B",
    "records of 1,000 B",
    "records of 10,000 B",
    "records of 100,000 B",
    BEYOND_WRITTEN,
    BEYOND_READ,
)
HEADLINE_ROWS = (
    *(
        row
        for work in HEADLINE_WORKS
        for row in (
            Row(f"{work}, records/s", work, "records/s", True, None),
            Row(f"{work}, MB/s", "·", "MB/s", True, None),
            Row(f"{work}, CPU", "· CPU of the brokers", "ms/MB", False, None),
        )
    ),
    Row("end to end, p50", "end to end at 100 records/s, three replicas, acks=all, p50", "ms", False, None),
    Row("end to end, p99", "· p99", "ms", False, None),
    Row("end to end, p99.9", "· p99.9", "ms", False, None),
)
SPARK_ROWS = (
    Row("batch_100b_rows_s", "batch read, 100 B values", "rows/s", True, 0.7),
    Row("batch_1k_rows_s", "batch read, 1 KB values", "rows/s", True, 1.0),
    Row("stream_100b_rows_s", "streaming read, 100 B values", "rows/s", True, 2.0),
    Row("stream_1k_rows_s", "streaming read, 1 KB values", "rows/s", True, 2.0),
    Row("micro_batch_s", "micro-batch floor", "s", False, None, limit=0.15),
    Row("write_100b_rows_s", "write, 100 B values", "rows/s", True, 0.7),
    Row("write_1k_rows_s", "write, 1 KB values", "rows/s", True, 0.7),
    Row("segments_100b_rows_s", "closed segments from disk, 100 B values", "rows/s", True, 2.0),
    Row("segments_1k_rows_s", "closed segments from disk, 1 KB values", "rows/s", True, 2.0),
)
TABLE_ROWS = (
    Row("delta_1k_rows_s", "into Delta Lake, 1 KB; beside it Parquet", "rows/s", True, 1.5),
    Row("delta_1k_cpu_us", "· CPU", "µs/row", False, None),
    Row("iceberg_1k_rows_s", "into Iceberg, 1 KB; beside it Parquet", "rows/s", True, 1.5),
    Row("iceberg_1k_cpu_us", "· CPU", "µs/row", False, None),
    Row(
        "upsert_1k_rows_s",
        "into Delta Lake by key, every key new, 1 KB; beside it Parquet",
        "rows/s",
        True,
        None,
    ),
    Row("upsert_1k_cpu_us", "· CPU", "µs/row", False, None),
    Row("files_1k_rows_s", "into Parquet files, 1 KB", "rows/s", True, 1.5),
    Row("files_1k_cpu_us", "· CPU", "µs/row", False, None),
    Row(
        "segments_1k_rows_s",
        "closed segments into Delta Lake, 1 KB; beside it our own live rate",
        "rows/s",
        True,
        2.0,
    ),
    Row("segments_1k_cpu_us", "· CPU", "µs/row", False, None),
    Row(
        "segments_single_rows_s",
        "the same of a topic with one partition",
        "rows/s",
        True,
        2.0,
    ),
    Row("segments_single_cpu_us", "· CPU", "µs/row", False, None),
    Row("delta_100b_rows_s", "into Delta Lake, 100 B; beside it Parquet", "rows/s", True, 1.5),
    Row("delta_100b_cpu_us", "· CPU", "µs/row", False, None),
    Row("files_100b_rows_s", "into Parquet files, 100 B", "rows/s", True, 1.5),
    Row("files_100b_cpu_us", "· CPU", "µs/row", False, None),
    Row(
        "topic_100b_rows_s", "into a topic, exactly once, 100 B; beside it at least once", "rows/s", True, 1.0
    ),
    Row("topic_100b_cpu_us", "· CPU", "µs/row", False, None),
    Row("start_s", "`pipeline run` to the end of its first micro-batch, warm", "s", False, None, limit=8),
)


def table_figures(work: str, size: str) -> list[tuple[str, str]]:
    """Subject and beginning of each figure that a work of `bench/tables.py` is."""
    if work == "plain":
        names = ("delta", "iceberg", "upsert", "files")
        return [("kafka", f"{name}_{size}") for name in names]
    if work == "plain topic":
        return [("kafka", f"topic_{size}")]
    ours = [("barnabas", f"{work}_{size}")]
    return [*ours, ("kafka", f"segments_{size}")] if work == "delta" else ours


def versions(repository: Path) -> dict[str, str]:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=repository, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = " with local changes" if git("status", "--porcelain", "--", "src") else ""
    return {
        "Barnabas": (git("rev-parse", "--short", "HEAD") or "unknown") + changed,
        "Apache Kafka": kafka_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


Clients = dict[str, dict[str, float]]
"""What was measured of each client, by its name."""

CLIENT_VERSIONS = ("aiokafka", "kafka-python", "confluent-kafka")


def write(directory: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    """`RESULTS.md` for people, `results.json` for programs."""
    _keep(directory / "results.json", samples, about, described)
    (directory / "results.svg").write_text(plot.drawn(_ratios(samples)))
    _publish(directory)


def write_cluster(directory: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    """The same for three brokers: `cluster.json`, and the second table of `RESULTS.md`."""
    _keep(directory / "cluster.json", samples, about, described)
    _publish(directory)


def write_headline(directory: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    """The same for the headline: `headline.json`, `headline.svg`, and a table of `RESULTS.md`."""
    _keep(directory / "headline.json", samples, about, described)
    (directory / "headline.svg").write_text(plot.drawn(_headline_ratios(samples)))
    _publish(directory)


def write_spark(directory: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    """The same for the connectors: `spark.json`, and a table of `RESULTS.md`."""
    _keep(directory / "spark.json", samples, about, described)
    _publish(directory)


def write_tables(directory: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    """The same for pipelines into tables: `tables.json`, and a table of `RESULTS.md`."""
    _keep(directory / "tables.json", samples, about, described)
    _publish(directory)


def write_growth(directory: Path, grown: list[Grown], about: dict[str, str], *, is_kept: bool) -> None:
    """The same for growth: `growth.json`, beside what the last run measured otherwise if it `is_kept`."""
    path = directory / "growth.json"
    measured = {(each.work, each.subject) for each in grown}
    if is_kept and path.exists():
        last = _read_grown(path)
        grown = [*(each for each in last if (each.work, each.subject) not in measured), *grown]
    raw = {"about": about, "grown": [asdict(each) for each in grown]}
    path.write_text(json.dumps(raw, indent=1) + "\n")
    _publish(directory)


def write_clients(directory: Path, measured: Clients, about: dict[str, str]) -> None:
    """The same for Python clients: `clients.json`, beside what the last run measured of other code."""
    path = directory / "clients.json"
    last: Clients = json.loads(path.read_text())["clients"] if path.exists() else {}
    path.write_text(json.dumps({"about": about, "clients": last | measured}, indent=1) + "\n")
    _publish(directory)


def rendered_clients(clients: Clients, about: dict[str, str]) -> str:
    """Both directions, cheapest first, with the cost over that of our source code."""
    lines = [
        "## Python clients",
        "",
        "CPU of the client (user and system, without the broker's) for each record of "
        f"{about['size']} B, one partition, one broker; `one` is the median of one awaited send at a time. "
        f"{about['records']} records; {about['machine']}. Rates and latencies are of that day: "
        "the CPU, and its ratio to `barnabas` as source, are what to compare. "
        + "; ".join(f"{name} {version}" for name, version in about.items() if name in CLIENT_VERSIONS)
        + f"; Python {about['Python']}. Written by `python -m bench.client --results bench`.",
        "",
        "| client | µs CPU a record | ratio | records/s | one, µs |",
        "|---|---|---|---|---|",
    ]
    for ours in ("barnabas, send", "barnabas, async for"):
        is_sent = ours == "barnabas, send"
        rows = {name: row for name, row in clients.items() if ("p50_us" in row) == is_sent}
        least = clients[ours]["cpu_us"] if ours in clients else None
        for name, row in sorted(rows.items(), key=lambda each: each[1]["cpu_us"]):
            ratio = "" if least is None else f"{row['cpu_us'] / least:.2f}"
            one = f"{row['p50_us']:.0f}" if is_sent else ""
            lines.append(f"| {name} | {row['cpu_us']:.2f} | {ratio} | {row['rate']:,.0f} | {one} |")
    return "\n".join(lines) + "\n"


def _read_grown(path: Path) -> list[Grown]:
    rows = json.loads(path.read_text())["grown"]
    return [Grown(**{**row, "sizes": tuple(row["sizes"]), "costs": tuple(row["costs"])}) for row in rows]


def with_last(path: Path, samples: Samples) -> Samples:
    """These, and beside them what the last run kept there measured otherwise."""
    last: Samples = json.loads(path.read_text())["samples"]
    return {name: last.get(name, {}) | samples.get(name, {}) for name in {**last, **samples}}


def _keep(path: Path, samples: Samples, about: dict[str, str], described: str) -> None:
    raw = {"about": about, "run": described, "samples": samples}
    path.write_text(json.dumps(raw, indent=1) + "\n")


def _publish(directory: Path) -> None:
    """All tables from what their last runs kept."""
    text = "# Results\n"
    tables = (
        ("results.json", rendered),
        ("cluster.json", rendered_cluster),
        ("headline.json", rendered_headline),
        ("spark.json", rendered_spark),
        ("tables.json", rendered_tables),
    )
    for name, render in tables:
        path = directory / name
        if path.exists():
            raw = json.loads(path.read_text())
            text += "\n" + render(raw["samples"], raw["about"], raw["run"])
            text += (directory / "tables.md").read_text() if render is rendered_tables else ""
    growth = directory / "growth.json"
    if growth.exists():
        text += "\n" + rendered_growth(_read_grown(growth), json.loads(growth.read_text())["about"])
    clients = directory / "clients.json"
    if clients.exists():
        raw = json.loads(clients.read_text())
        text += "\n" + rendered_clients(raw["clients"], raw["about"]) + (directory / "clients.md").read_text()
    by_hand = [(directory / name).read_text() for name in ("security.md", "behind.md")]
    (directory / "RESULTS.md").write_text(text + "".join(by_hand))


def _ratios(samples: Samples) -> list[tuple[str, float]]:
    """Ratio to the peer, row by row, where a goal is set."""
    ratios = []
    for row in ROWS:
        ours, kafkas = (samples.get(name, {}).get(row.figure) for name in ("barnabas", "kafka"))
        if row.wanted is None or not ours or not kafkas:
            continue
        mine, theirs = statistics.median(ours), statistics.median(kafkas)
        if mine and theirs:
            name = _full_name(row)
            ratios.append((name, mine / theirs if row.more_is_better else theirs / mine))
    return ratios


def _headline_ratios(samples: Samples) -> list[tuple[str, float]]:
    """Records a second, how many times Apache Kafka's; and the CPU of a megabyte, how many times less."""
    ratios = []
    for work in HEADLINE_WORKS:
        for figure, name in ((f"{work}, records/s", work), (f"{work}, CPU", f"{work}, CPU")):
            ours, kafkas = (samples.get(subject, {}).get(figure) for subject in ("barnabas", "kafka"))
            if ours and kafkas:
                ratio = statistics.median(ours) / statistics.median(kafkas)
                ratios.append((name, 1 / ratio if figure.endswith("CPU") else ratio))
    return ratios


def _full_name(row: Row) -> str:
    """A row that begins with a dot goes on with the work above it."""
    if not row.work.startswith("·"):
        return row.work
    above = [each for each in ROWS[: ROWS.index(row)] if not each.work.startswith("·")][-1]
    return f"{above.work.split(',')[0]}{row.work.replace('·', ',')}"


def rendered(samples: Samples, about: dict[str, str], described: str) -> str:
    bares = samples.get("bare loop", {})
    return _table("One broker", "make bench", ROWS, samples, about, described, bares)


def rendered_cluster(samples: Samples, about: dict[str, str], described: str) -> str:
    return _table("Three brokers", "make bench-cluster", CLUSTER_ROWS, samples, about, described)


def rendered_headline(samples: Samples, about: dict[str, str], described: str) -> str:
    title = "Two million writes a second on three cheap machines, on one"
    plotted = "\n![Times better than Apache Kafka](headline.svg)\n"
    return _table(title, "make bench-headline", HEADLINE_ROWS, samples, about, described) + plotted


def rendered_spark(samples: Samples, about: dict[str, str], described: str) -> str:
    title, peer = "Connectors of Spark", "Spark's JVM connector"
    return _table(title, "make bench-spark", SPARK_ROWS, samples, about, described, peer=peer)


def rendered_tables(samples: Samples, about: dict[str, str], described: str) -> str:
    """Rows that were measured, beside plain Spark."""
    ours = samples.get("barnabas", {})
    rows = [row for row in TABLE_ROWS if row.figure in ours]
    title, peer = "Pipelines into tables", "plain Spark"
    return _table(title, "make bench-tables", rows, samples, about, described, peer=peer)


def rendered_growth(grown: list[Grown], about: dict[str, str]) -> str:
    lines = [
        "## Growth",
        "",
        "CPU of the broker (user and system) for one of each, at two sizes of what lies around it; what "
        "should not grow is about 1 in the last columns. "
        + "; ".join(f"{name} {version}" for name, version in about.items())
        + ". Written by `make bench-growth`.",
        "",
        "| work | unit | sizes | Barnabas | Apache Kafka | growth | growth of Apache Kafka |",
        "|---" * 7 + "|",
    ]
    for work in dict.fromkeys(each.work for each in grown):
        subjects = {each.subject: each for each in grown if each.work == work}
        one = next(iter(subjects.values()))
        both = [subjects.get("barnabas"), subjects.get("kafka")]
        costs = [" → ".join(_number(cost) for cost in each.costs) if each else "" for each in both]
        growths = [f"{each.costs[1] / each.costs[0]:.2f}" if each else "" for each in both]
        sizes = " → ".join(f"{size:,}" for size in one.sizes)
        lines.append("| " + " | ".join([work, one.unit, sizes, *costs, *growths]) + " |")
    return "\n".join(lines) + "\n"


def _table(
    title: str,
    command: str,
    rows: Sequence[Row],
    samples: Samples,
    about: dict[str, str],
    described: str,
    bares: dict[str, list[float]] | None = None,
    *,
    peer: str = "Apache Kafka",
) -> str:
    ours, compiled, kafkas = (samples.get(name, {}) for name in ("barnabas", "compiled", "kafka"))
    headings = ["work", "unit", "Barnabas", peer, "ratio", "wanted"]
    headings += ["compiled", "ratio"] if compiled else []
    headings += [] if bares is None else ["bare loop"]
    lines = [
        f"## {title}",
        "",
        f"{described} Medians, with least and greatest in brackets. "
        + "; ".join(f"{name} {version}" for name, version in about.items())
        + f". Written by `{command}`.",
        "",
        "| " + " | ".join(headings) + " |",
        "|---" * len(headings) + "|",
    ]
    for row in rows:
        columns = [ours.get(row.figure, []), kafkas.get(row.figure, [])]
        if any(columns):
            cells = [row.work, row.unit, *(_with_spread(values) for values in columns)]
            cells += _ratio_and_wanted(row, *columns)
            if compiled:
                values = compiled.get(row.figure, [])
                cells += [_with_spread(values), _ratio_and_wanted(row, values, columns[1])[0]]
            cells += [] if bares is None else [_with_spread(bares.get(row.figure, []))]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _with_spread(values: list[float]) -> str:
    if not values:
        return ""
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio_and_wanted(row: Row, ours: list[float], kafkas: list[float]) -> tuple[str, str]:
    if row.limit is not None and ours:
        ratio = f"{statistics.median(ours) / statistics.median(kafkas):.2f} " if kafkas else ""
        mark = "✓" if statistics.median(ours) <= row.limit else "✗"
        return f"{ratio}{mark}", f"≤ {row.limit:.2g} {row.unit}"
    sign = "≥" if row.more_is_better else "≤"
    wanted = "" if row.wanted is None else f"{sign} {row.wanted:.2g}"
    if not ours or not kafkas or not statistics.median(kafkas):
        return "", wanted
    ratio = statistics.median(ours) / statistics.median(kafkas)
    if row.wanted is None:
        return f"{ratio:.2f}", wanted
    reached = ratio >= row.wanted if row.more_is_better else ratio <= row.wanted
    return f"{ratio:.2f} {'✓' if reached else '✗'}", wanted
