"""HTTP sink: every row is sent to a web service, at least once.

A micro-batch that is repeated sends its rows again. So each request has an idempotency key, by which the
receiver can recognise a repetition. The key is the same for the same rows of a query, in every attempt,
driver and micro-batch. A row is identified by its record's coordinates and its body; rows without coordinates
(of a window) by their batch and task too. Equal rows in a task are numbered: they are several, not one.

Tasks send the rows of a partition one request after the other, so that the order of a key holds. A request
holds up to `batch_records` rows. A body that the receiver refuses (4xx) is cut into halves, down to single
rows. A refused row stops the pipeline, or with tolerance `all` becomes a dead letter. Its record is read
again, by its coordinates, and written with the receiver's answer as the reason. Letters come at least once,
like the rows: a repeated micro-batch writes them again.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import Row

from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.formats.encoding import encoded_key, encoded_value
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spark.sinks.http_client import HttpClient, Receiver
from barnabas.pipelines.spec.model import Part, Tolerance
from barnabas.pipelines.spec.options.http import KEY, TOPIC, resolved_complaint
from barnabas.pipelines.spec.options.option import duration_ms
from barnabas.security.identity.secret_references import has_reference

logger = logging.getLogger(__name__)

REFUSED_MAX = 10_000
"""Bound of the refused rows of a micro-batch that the driver keeps."""
REASON_CHARACTERS_MAX = 300
_CONTENT_TYPES = {"json": "application/json", "csv": "text/csv", "text": "text/plain; charset=utf-8"}
_LATIN_END = 256
_LINES = "application/x-ndjson"
_COORDINATES = ("_topic", "_partition", "_offset")

SetAside = Callable[[Mapping[str, str]], None]
"""Writes the dead letters of records, given by `topic/partition/offset` with the reasons."""


class Refused(NamedTuple):
    record: str | None
    """Record of the row, as `topic/partition/offset`; None where a transform dropped the coordinates."""
    reason: str


class Report(NamedTuple):
    """Report of one task."""

    rows: int
    refused: list[Refused]


class _Sent(NamedTuple):
    """Row to send."""

    key: bytes | None
    body: bytes | None
    topic: str
    record: str | None
    identity: str


def write(rows: DataFrame, part: Part, run: Run, set_aside: SetAside) -> BuiltSink:
    """`set_aside` is called with the refused records of a micro-batch, where they become dead letters."""
    chosen = _chosen(rows, part, run)
    sender = _Sender(_receiver(part, run), _Form.of(part, run))

    def take(batch: DataFrame, batch_id: int) -> None:
        name, send = query_id(batch), sender

        def task(found: Iterable[Row]) -> Iterator[Report]:
            yield send.send_all(found, name, batch_id)

        _finish(batch.rdd.mapPartitions(task).collect(), batch_id, run, set_aside)

    return BuiltSink(chosen.writeStream.foreachBatch(take))


def _chosen(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    has_place = all(name in rows.columns for name in _COORDINATES)
    record = F.concat_ws("/", *_COORDINATES) if has_place else F.lit(None).cast("string")
    topic = F.col("_topic") if "_topic" in rows.columns else F.lit("")
    return rows.select(
        encoded_key(rows, part).alias("key"),
        encoded_value(rows, part, run).alias("value"),
        topic.alias("topic"),
        record.alias("record"),
    )


def _receiver(part: Part, run: Run) -> Receiver:
    given = part.get("headers") or {}
    headers = {str(name): _line(text) for name, text in (run.resolved(part, "headers") or {}).items()}
    if token := run.resolved(part, "token"):
        headers["Authorization"] = f"Bearer {_line(token)}"
    elif user := run.resolved(part, "user"):
        pair = f"{_line(user)}:{_line(run.resolved(part, 'password') or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    for name, text in headers.items():
        if not _is_header_value(text):
            raise PipelineFailed(
                f"sink: the value of the header {name} has a line break, or a letter beyond Latin-1"
            )
    return Receiver(
        method=part["method"],
        headers=headers,
        timeout_s=duration_ms(part["timeout"]) / 1_000,
        retries=part["retries"],
        backoff_s=duration_ms(part["backoff"]) / 1_000,
        backoff_s_max=duration_ms(part["backoff_max"]) / 1_000,
        redirect_hosts=tuple(part.get("redirect_hosts") or ()),
        ca_file=run.resolved(part, "ca_file"),
        secret_headers=frozenset(str(name).lower() for name, text in given.items() if has_reference(text)),
    )


def _line(text: object) -> str:
    """Value of a secret without the line break that ends its file."""
    return str(text).rstrip("\r\n")


def _is_header_value(text: str) -> bool:
    return not any(each in text for each in "\r\n\0") and all(ord(each) < _LATIN_END for each in text)


def _finish(reports: Sequence[Report], batch_id: int, run: Run, set_aside: SetAside) -> None:
    """Report or dead-letter the refused rows of a micro-batch; raises PipelineFailed where it must stop."""
    refused = [each for report in reports for each in report.refused]
    if not refused:
        return
    errors, total = run.spec.errors, sum(report.rows for report in reports)
    first = f"record {refused[0].record or 'without coordinates'}: {refused[0].reason}"
    if errors.tolerance is Tolerance.NONE:
        raise PipelineFailed(f"the receiver refuses {first}")
    if len(refused) > errors.max_error_ratio * total:
        raise PipelineFailed(
            f"batch {batch_id}: the receiver refuses {len(refused)} of {total} rows, more than"
            f" max_error_ratio {errors.max_error_ratio:g}; the first is {first}"
        )
    logger.warning(
        "pipeline %s: batch %d: the receiver refuses %d of %d rows; the first is %s",
        run.spec.name, batch_id, len(refused), total, first,
    )  # fmt: skip
    if errors.dead_letter_topic is None:
        return
    if run.spec.source.type != "topic" or any(each.record is None for each in refused):
        raise PipelineFailed(
            f"a refused row has no record to become a dead letter: keep {', '.join(_COORDINATES)} in the"
            f" transforms, or leave out dead_letter_topic; {first}"
        )
    set_aside({str(each.record): each.reason for each in refused})


@dataclass(frozen=True, slots=True)
class _Form:
    """Form of the requests."""

    url: str
    batch_records: int
    body_bytes_max: int
    is_lines: bool
    tombstones: str
    idempotency_header: str
    content_type: str

    @classmethod
    def of(cls, part: Part, run: Run) -> _Form:
        is_lines = part["body"] == "lines" and part["batch_records"] > 1
        content = _CONTENT_TYPES.get(part["format"], "application/octet-stream")
        url = str(run.resolved(part, "url"))
        if complaint := resolved_complaint({**part.options, "url": url}):
            raise PipelineFailed(f"sink.url: {complaint}")
        return cls(
            url, part["batch_records"], part["max_body_bytes"], is_lines,
            part["tombstones"], part["idempotency_header"], _LINES if is_lines else content,
        )  # fmt: skip

    def url_of(self, row: _Sent) -> str | None:
        """Address of a row; None if its key has no form in an address."""
        if KEY not in self.url and TOPIC not in self.url:
            return self.url
        key = quote((row.key or b"").decode(errors="strict"), safe="")
        if KEY in self.url and key in ("", ".", ".."):
            return None
        return self.url.replace(KEY, key).replace(TOPIC, quote(row.topic, safe=""))

    def body_of(self, rows: Sequence[_Sent]) -> bytes:
        bodies = [row.body or b"" for row in rows]
        if self.batch_records == 1:
            return bodies[0]
        return b"\n".join(bodies) + b"\n" if self.is_lines else b"[" + b",".join(bodies) + b"]"


@dataclass(frozen=True, slots=True)
class _Sender:
    """Requests of a task; picklable."""

    receiver: Receiver
    form: _Form

    def send_all(self, rows: Iterable[Row], query: str, batch_id: int) -> Report:
        from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

        context = TaskContext.get()
        place = f"{batch_id}/{context.partitionId() if context is not None else 0}"
        refused: list[Refused] = []
        count = 0
        with closing(HttpClient(self.receiver)) as client:
            for group in self._groups(self._identified(rows, query, place)):
                count += len(group)
                refused += self._send(client, group)
                if len(refused) > REFUSED_MAX:
                    raise PipelineFailed(
                        f"the receiver refuses more than {REFUSED_MAX} rows of a micro-batch; one of them is"
                        f" record {refused[0].record}: {refused[0].reason}"
                    )
        return Report(count, refused)

    def _identified(self, rows: Iterable[Row], query: str, place: str) -> Iterator[_Sent]:
        seen: Counter[bytes] = Counter()
        for key, value, topic, record in rows:
            if value is None and self.form.tombstones == "ignore":
                continue
            body = None if value is None else bytes(value)
            digest = hashlib.sha256()
            for each in (query.encode(), (record or place).encode(), bytes(key or b""), body or b""):
                digest.update(len(each).to_bytes(8, "big") + each)
            seen[digest.digest()] += 1
            digest.update(seen[digest.digest()].to_bytes(8, "big"))
            yield _Sent(None if key is None else bytes(key), body, topic or "", record, digest.hexdigest())

    def _groups(self, rows: Iterable[_Sent]) -> Iterator[list[_Sent]]:
        """Rows of one request each: bounded in number and size, and of the same address."""
        group: list[_Sent] = []
        size = 0
        for row in rows:
            length = len(row.body or b"") + 1
            is_alone = row.body is None
            is_full = len(group) >= self.form.batch_records or size + length + 1 > self.form.body_bytes_max
            if group and (is_full or is_alone or group[-1].topic != row.topic):
                yield group
                group, size = [], 0
            group.append(row)
            size += length
            if is_alone:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _send(self, client: HttpClient, rows: Sequence[_Sent]) -> list[Refused]:
        reason = self._refusal(client, rows)
        if reason is None:
            return []
        if len(rows) == 1:
            return [Refused(rows[0].record, reason[:REASON_CHARACTERS_MAX])]
        middle = len(rows) // 2
        return [*self._send(client, rows[:middle]), *self._send(client, rows[middle:])]

    def _refusal(self, client: HttpClient, rows: Sequence[_Sent]) -> str | None:
        """Send one request; returns the reason of a refusal."""
        first = rows[0]
        if first.body is None and self.form.tombstones == "fail":
            return "the record has no value, and tombstones is fail"
        try:
            url = self.form.url_of(first)
        except UnicodeDecodeError:
            url = None
        if url is None:
            return "the record's key has no form in an address"
        body = self.form.body_of(rows)
        if len(body) > self.form.body_bytes_max:
            return f"a body of {len(body)} bytes is larger than max_body_bytes {self.form.body_bytes_max}"
        headers = {"Content-Type": self.form.content_type, self.form.idempotency_header: _name_of(rows)}
        is_deletion = first.body is None and self.form.tombstones == "delete"
        refusal = (
            client.send(url, None, headers, method="DELETE")
            if is_deletion
            else client.send(url, body, headers)
        )
        return None if refusal is None else f"the receiver answers {refusal.reason}"


def _name_of(rows: Sequence[_Sent]) -> str:
    """Idempotency key of a request."""
    whole = hashlib.sha256("".join(row.identity for row in rows).encode()).digest()
    return str(uuid.UUID(bytes=whole[:16], version=5))
