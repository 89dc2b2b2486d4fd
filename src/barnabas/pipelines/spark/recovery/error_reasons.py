"""Reason of a failed query: one sentence out of its stack trace, without secrets.

A failure in Python reaches the driver as text: a worker's traceback inside a Java exception, perhaps inside
the traceback of a `foreachBatch` function. The last traceback is the innermost, and its last line names the
exception. A Java exception is described by its last cause.

The same text separates a failure of the pipeline from a peer out of reach (`failure_of`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.security.identity.secret_references import redact

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_EXCEPTION = re.compile(r"(?:\w+\.)*([A-Z]\w*)(: .+)?")
_CARRIERS = frozenset({"Py4JJavaError", "Py4JError", "Py4JNetworkError", "PythonException"})
"""Exceptions that only carry an error from the other side of a socket."""
_PYTHON = re.compile(
    r"^(?:[\w.]*\.)?([A-Z]\w*(?:Error|Exception|Failed|Missing|Loss|Fenced)\w*: .+)$", re.MULTILINE
)
_END = r"(?:,? SQLSTATE|\n\s*at |\n==|\n\n|\Z)"
"""End of Spark's sentence, which may run over several lines: the SQLSTATE, or a stack trace without one."""
_USER_RAISED = re.compile(rf"\[USER_RAISED_EXCEPTION\] (.+?){_END}", re.DOTALL)
_SILENT = re.compile(
    r"Python (?:planner )?worker process terminated due to idle timeout \(timeout: (\d+) seconds\)"
)
_CLASSED = re.compile(rf"(\[[A-Z_.0-9]+\] .+?){_END}", re.DOTALL)
_STREAM_FAILED = re.compile(r"\[STREAM_FAILED\] Query (?:\[[^\]]*\] )?terminated with exception: ")
_NO_REASON = re.compile(
    r"\s*(?:\[STREAM_FAILED\] Query (?:\[[^\]]*\] )?terminated with exception:\s*)?(?:SQLSTATE: \w+)?\s*"
    r"|An error occurred while calling [\w.]+"
)
"""Text of a failure whose cause the JVM could no longer tell."""
_PAIR = re.compile(r"(\w+Error): \((\d{4}), [\"'](.*)[\"']\)", re.DOTALL)
JVM_ENDED = "Spark's JVM has ended: out of memory, or killed"
LENGTH_MAX = 2_000

_ABSENCES = frozenset(
    {
        # Ours, and those of database drivers.
        "Away", "BrokerMissing", "RegistryAway", "NoBrokerAnswers", "ClusterUnreachable", "InterfaceError",
        # Kafka's: the cluster cannot serve the request now, and another attempt may succeed.
        "LeaderNotAvailable", "NotLeaderOrFollower", "RequestTimedOut", "BrokerNotAvailable",
        "ReplicaNotAvailable", "NetworkException", "CoordinatorLoadInProgress", "CoordinatorNotAvailable",
        "NotCoordinator", "NotEnoughReplicas", "NotEnoughReplicasAfterAppend", "NotController",
        "KafkaStorageError", "FencedLeaderEpoch", "UnknownLeaderEpoch", "OffsetNotAvailable",
        "EligibleLeadersNotAvailable",
    }
)  # fmt: skip
_JAVA_ABSENCES = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Network|Disconnect|CoordinatorNotAvailable"
    r"|LeaderNotAvailable|BrokerNotAvailable|NotEnoughReplicas)\w*Exception"
)
_DATABASE_ABSENCES = re.compile(
    r"DatabaseError: .*'C': '(?:08\w{3}|53\w{3}|57P0[1-3]|55P03|40P01)'"
    r"|OperationalError: \((?:20\d\d|1040|1053|1152|1159|1161|1203|1205|1213|1226),"
    r"|OperationalError: database is locked"
)
"""PostgreSQL's classes of SQLSTATE (no connection, no resources, shutdown or start) and its codes for locks,
MySQL's numbers for the same, and SQLite's lock."""


def reason_of(error: BaseException, spec: PipelineSpec) -> str:
    if isinstance(error, (ConnectionError, Py4JNetworkError)) or _NO_REASON.fullmatch(str(error)):
        return JVM_ENDED
    return scrub(reason_of_text(str(error)), spec)


def reason_of_text(text: str) -> str:
    """Reason of a failure in another process, from what it printed."""
    return " ".join(_readable(_sentence(text)).split())[:LENGTH_MAX]


def failure_of(error: BaseException, spec: PipelineSpec) -> PipelineFailed:
    """Exception for a query that failed by `error`: `Away` if a peer was out of reach."""
    kind = Away if is_of_absence(str(error)) else PipelineFailed
    return kind(reason_of(error, spec))


def is_of_absence(text: str) -> bool:
    """True if a failure means that a broker, database or registry is out of reach or cannot serve."""
    names = [name for name, _ in _raised(text)]
    if names:
        return names[-1] in _ABSENCES or _DATABASE_ABSENCES.search(text) is not None
    return _JAVA_ABSENCES.search(text) is not None


def scrub(text: str, spec: PipelineSpec) -> str:
    """`text` without the secrets of the spec."""
    for part in (spec.source, spec.sink, *spec.transforms):
        text = redact(text, part.options)
    return redact(text, spec.spark.conf)


def _sentence(text: str) -> str:
    text = _STREAM_FAILED.sub("", text)
    if found := _USER_RAISED.search(text):
        return found.group(1)
    if silent := _SILENT.search(text):
        return (
            f"a Python worker made no progress for {silent.group(1)} s and was killed: is a function stuck?"
        )
    lines = text.splitlines()
    for found_of_a_kind in (
        ["".join(each) for each in _raised(text)],
        [each for each in _PYTHON.findall(text) if each.partition(":")[0] not in _CARRIERS],
        [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")],
        _CLASSED.findall(text),
    ):
        if found_of_a_kind:
            return str(found_of_a_kind[-1])
    return next((line.strip() for line in lines if line.strip()), "no reason was given")


def _readable(sentence: str) -> str:
    """Readable form of an error of pg8000, a mapping of one-letter names, or of PyMySQL, a pair."""
    if found := _PAIR.fullmatch(sentence):
        return f"{found[1]}: {found[3]} (error {found[2]})"
    name, colon, detail = sentence.rpartition("{")
    try:
        fields = ast.literal_eval(colon + detail)
        return f"{name}{fields['M']} (SQLSTATE {fields['C']})"
    except (ValueError, SyntaxError, KeyError, TypeError):
        return sentence


def _raised(text: str) -> Iterator[tuple[str, str]]:
    """Name and message of every traceback's exception, without those that only carry another."""
    for last in _TRACEBACK.findall(text):
        exception = _EXCEPTION.fullmatch(last.rstrip())
        if exception is not None and exception.group(1) not in _CARRIERS:
            yield exception.group(1), exception.group(2) or ""
