"""Validation of a spec before Spark starts.

One pass finds every problem, in the order of the file: location (file and line), found value, expected value,
and the probable intent. The rows of the catalogue are the rules; this module has only the messages.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from barnabas.pipelines.spec.analysis import complaints
from barnabas.pipelines.spec.cross_checks import complaints_about_whole, master_complaint
from barnabas.pipelines.spec.model import (
    Delivery,
    Engine,
    Errors,
    Part,
    PipelineSpec,
    Restart,
    Spark,
    Tolerance,
    Trigger,
)
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import DURATION, Kind, Option, Plugin, Value, duration_ms
from barnabas.pipelines.spec.options.sections import ERRORS, RESTART, SPARK, TOP
from barnabas.pipelines.spec.options.sinks import EXACTLY_ONCE_SINKS
from barnabas.pipelines.spec.options.value_parsers import password_complaint
from barnabas.pipelines.spec.options.values import convert
from barnabas.pipelines.spec.problems import InvalidSpec, Problem, meant, shown
from barnabas.pipelines.spec.sql.ddl import schema_complaint
from barnabas.pipelines.spec.yaml_source import Located, Path
from barnabas.security.identity.secret_references import has_reference

NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
"""A directory has this name, and it must stay below its parent: neither `.` nor `..`."""
TASK_NAME = re.compile(r".*\.task-\d+")
"""The tasks of another pipeline have transactional ids of this form (`pyspark_barnabas.writers.attempts`)."""

SYNONYMS = {
    "kafka": "topic", "barnabas": "topic", "topics": "topic",
    "postgres": "jdbc", "postgresql": "jdbc",
    "mysql": "jdbc", "mariadb": "jdbc", "sqlite": "jdbc", "database": "jdbc",
    "delta": "table", "iceberg": "table", "deltalake": "table", "lakehouse": "table",
    "parquet": "files", "json": "files", "csv": "files", "orc": "files", "s3": "files", "hdfs": "files",
    "stdout": "console", "print": "console", "terminal": "console",
    "webhook": "http", "https": "http", "rest": "http",
    "select": "sql", "query": "sql", "where": "filter", "dedup": "deduplicate", "distinct": "deduplicate",
    "aggregate": "window", "udf": "python", "function": "python",
}  # fmt: skip
"""Names that other systems use for our types, where spelling alone gives no match."""


def load(located: Located, *, is_whole: bool = True) -> PipelineSpec:
    """Load a spec; raises InvalidSpec with all of its problems.

    A spec is not whole if functions follow the transforms: then the columns of the sink are unknown.
    """
    check = _Check(located)
    spec = check.spec()
    if spec is not None:
        check.columns(spec, is_whole=is_whole)
    if check.problems or spec is None:
        raise InvalidSpec(sorted(check.problems, key=lambda problem: (problem.line or 0, problem.option)))
    return spec


def load_document(document: Value, file: str = "<spec>", *, is_whole: bool = True) -> PipelineSpec:
    return load(Located(document, file), is_whole=is_whole)


class _Check:
    def __init__(self, located: Located) -> None:
        self._located = located
        self.problems: list[Problem] = []

    def complain(self, path: Path, message: str, *, missing: str = "") -> None:
        self.problems.append(Problem(path, self._located.file, self._located.line(path), message, missing))

    def spec(self) -> PipelineSpec | None:
        document = self._located.document
        if not isinstance(document, Mapping):
            self.complain((), f"found {shown(document)}; expected a mapping with name, source and sink")
            return None
        top = self.options(document, TOP, (), "a pipeline")
        source = self.part(document, "source", ("source",)) if "source" in document else None
        sink = self.part(document, "sink", ("sink",)) if "sink" in document else None
        transforms = self.transforms(document.get("transforms"))
        errors = self.section(document, "errors", ERRORS)
        restart = self.section(document, "restart", RESTART)
        spark = self.section(document, "spark", SPARK)
        trigger = self.trigger(document.get("trigger"))
        if "name" in top and not NAME.fullmatch(str(top["name"])):
            self.complain(("name",), f"found {top['name']!r}; expected letters, digits, '.', '_' and '-'")
        elif "name" in top and TASK_NAME.fullmatch(str(top["name"])):
            self.complain(("name",), f"found {top['name']!r}; a name must not end in .task-<n>, like a task")
        for path, message in complaints_about_whole(top, source, sink, transforms, errors, trigger):
            self.complain(path, message)
        if isinstance(spark["master"], str) and (complaint := master_complaint(spark["master"])):
            self.complain(("spark", "master"), complaint)
        if self.problems or source is None or sink is None:
            return None
        return PipelineSpec(
            name=top["name"],
            source=source,
            sink=sink,
            transforms=transforms,
            errors=Errors(
                Tolerance(errors["tolerance"]), errors["dead_letter_topic"], float(errors["max_error_ratio"])
            ),
            trigger=trigger,
            delivery=_delivery(top.get("delivery"), sink),
            engine=Engine(top.get("engine") or "auto"),
            restart=Restart(
                restart["max_attempts"], duration_ms(restart["backoff"]), duration_ms(restart["backoff_max"])
            ),
            spark=Spark(spark["master"], {key: str(each) for key, each in (spark["conf"] or {}).items()}),
        )

    def columns(self, spec: PipelineSpec, *, is_whole: bool) -> None:
        sink = spec.sink if is_whole else None
        for path, message, further in complaints(spec.source, spec.transforms, sink):
            line = self._located.line(path)
            # A query of several lines begins below its key.
            line_in_query = line if line is None or not further else line + further + 1
            self.problems.append(Problem(path, self._located.file, line_in_query, message))

    def section(self, document: Mapping[str, Value], name: str, rows: Sequence[Option]) -> dict[str, Value]:
        defaults = {row.name: row.default for row in rows}
        given = document.get(name)
        if given is None:
            return defaults
        if not isinstance(given, Mapping):
            names = ", ".join(row.name for row in rows)
            self.complain((name,), f"found {shown(given)}; expected a mapping of {names}")
            return defaults
        return defaults | self.options(given, rows, (name,), name)

    def trigger(self, given: Value) -> Trigger:
        if isinstance(given, Mapping) and set(given) == {"interval"}:
            given = given["interval"]
        if given is None:
            return Trigger()
        if given in ("available_now", "once"):
            return Trigger(available_now=True)
        if isinstance(given, str) and DURATION.fullmatch(given):
            return Trigger(interval_ms=duration_ms(given))
        self.complain(
            ("trigger",), f"found {shown(given)}; expected a duration such as '10 seconds', or available_now"
        )
        return Trigger()

    def transforms(self, given: Value) -> tuple[Part, ...]:
        if given is None:
            return ()
        if not isinstance(given, list):
            self.complain(("transforms",), f"found {shown(given)}; expected a list, each item after a '-'")
            return ()
        parts = (self._transform(item, ("transforms", at)) for at, item in enumerate(given))
        return tuple(part for part in parts if part is not None)

    def _transform(self, item: Value, path: Path) -> Part | None:
        """`{type: sql, query: …}`, or the shorthand `{sql: …}`."""
        if isinstance(item, Mapping) and len(item) == 1 and "type" not in item:
            ((name, value),) = item.items()
            plugin = CATALOGUE["transform"].get(name)
            if isinstance(value, Mapping):
                item = {"type": name, **value}
            elif plugin is not None and plugin.primary is not None:
                item = {"type": name, plugin.primary: value}
            else:
                item = {"type": name}
        return self.part({"": item}, "transform", path, key="")

    def part(self, holder: Mapping[str, Value], role: str, path: Path, key: str | None = None) -> Part | None:
        given = holder[role if key is None else key]
        kinds = CATALOGUE[role]
        if not isinstance(given, Mapping):
            self.complain(path, f"found {shown(given)}; expected a mapping with 'type': {', '.join(kinds)}")
            return None
        name = given.get("type")
        if name is None:
            self.complain(path, f"has no 'type'; expected one of {', '.join(kinds)}")
            return None
        plugin = kinds.get(str(name).rsplit(".", 1)[-1]) if isinstance(name, str) else None
        if plugin is None:
            type_path = (*path, "type") if "type" in _keys_at(self._located, path) else path
            known = SYNONYMS.get(str(name).lower())
            hint = f"did you mean {known!r}?" if known in kinds else meant(str(name), kinds)
            self.complain(type_path, f"there is no {role} {name!r}; {hint}")
            return None
        options = {option: value for option, value in given.items() if option != "type"}
        checked = self.options(options, plugin.options, path, f"{role} {plugin.name}", plugin)
        return Part(plugin.name, plugin.with_defaults(checked))

    def options(
        self,
        given: Mapping[str, Value],
        rows: Sequence[Option],
        path: Path,
        subject: str,
        plugin: Plugin | None = None,
    ) -> dict[str, Value]:
        by_name = {row.name: row for row in rows}
        by_name |= {alias: row for row in rows for alias in row.aliases}
        found: dict[str, Value] = {}
        before = len(self.problems)
        for name, value in given.items():
            row = by_name.get(name)
            if row is None:
                self.complain(
                    (*path, name),
                    f"{subject} has no option {name!r}; {meant(name, [row.name for row in rows])}",
                )
            elif value is not None:
                found[row.name] = self.value(row, value, (*path, name))
        for row in rows:
            if row.is_required and row.name not in found and not _has_any(given, row):
                self.complain(
                    path, f"{subject} needs {row.name!r} ({row.expected}): {row.doc}", missing=row.name
                )
        if plugin is not None and len(self.problems) == before:
            for complaint in plugin.check(found):
                self.complain(path, complaint)
        return found

    def value(self, row: Option, value: Value, path: Path) -> Value:
        if row.kind is Kind.SECTION:
            return value
        if row.kind is Kind.PART:
            return self.part({"": value}, "source", path, key="")
        if row.secret and not has_reference(value):
            self.complain(
                path,
                "found a secret in plain text; expected a reference: ${env:NAME} or ${file:path:key}",
            )
            return value
        if has_reference(value):
            if row.is_address and (complaint := password_complaint(str(value))):
                self.complain(path, complaint)
            return self.reference(row, value, path)
        converted, fits = convert(row, value)
        if not fits:
            hint = ""
            if row.kind is Kind.CHOICE and isinstance(value, str):
                close = difflib.get_close_matches(value, row.choices, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
            self.complain(path, f"found {shown(value)}; expected {row.expected}{hint}")
            return None  # checks across options then see no value, rather than a wrong one
        check = schema_complaint if row.kind is Kind.SCHEMA else row.check
        complaint = None if check is None else check(converted)
        if complaint is None and row.is_address:
            complaint = password_complaint(converted)
        if complaint:
            self.complain(path, complaint)
        return converted

    def reference(self, row: Option, value: Value, path: Path) -> Value:
        """Check of a reference. It may stand for any value of a part; settings of the pipeline are needed
        before it is resolved."""
        is_of_part = path[0] in ("source", "sink", "transforms")
        if not isinstance(value, str) or is_of_part or row.kind is Kind.TEXT:
            return [value] if row.kind is Kind.LIST and isinstance(value, str) else value
        self.complain(path, f"found the reference {value!r}; expected {row.expected}, written out")
        return None


def _delivery(asked: Value, sink: Part) -> Delivery:
    if asked is not None:
        return Delivery(asked)
    return Delivery.EXACTLY_ONCE if sink.type in EXACTLY_ONCE_SINKS else Delivery.AT_LEAST_ONCE


def _has_any(given: Mapping[str, Value], row: Option) -> bool:
    return any(given.get(name) is not None for name in (row.name, *row.aliases))


def _keys_at(located: Located, path: Path) -> set[str]:
    return {str(key[-1]) for key in located.lines if key[:-1] == path}
