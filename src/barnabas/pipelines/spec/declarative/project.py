"""Project file of a declarative pipeline (`spark-pipeline.yml`), read and checked without Spark.

`spark-pipelines` refuses keys that it does not know, so settings of the service stand among those of Spark,
under `configuration`: `spark.barnabas.update.min.interval` is the service's setting `update.min.interval`.
Spark keeps settings that it does not know. So `spark-pipelines run` takes the same project unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from barnabas.pipelines.spec.declarative.named_topics import named_topics
from barnabas.pipelines.spec.declarative.settings import setting_complaint
from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.problems import InvalidSpec, Problem, meant, shown
from barnabas.pipelines.spec.validation import NAME
from barnabas.pipelines.spec.yaml_source import Located, UnreadableSpec, read_yaml
from barnabas.pipelines.spec.yaml_source import Path as Place

FILE_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
PREFIX: Final = "spark.barnabas."
"""Beginning of the service's settings among those of Spark."""
FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
SOURCES: Final = (".py", ".sql")
UNREADABLE: Final = (InvalidSpec, UnreadableSpec, OSError, UnicodeDecodeError)
"""Errors of a project that cannot be read."""
_MAGIC: Final = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class Project:
    file: Path
    name: str
    storage: str
    """URI below which Spark keeps the checkpoints of the flows."""
    settings: Mapping[str, str]
    """Settings of the service, without their prefix."""
    sources: tuple[Path, ...]
    """Python and SQL files of the project."""
    topics: frozenset[str] = frozenset()
    """Topics that the Python names."""


def is_project(file: Path) -> bool:
    return file.name in FILE_NAMES


def read_project(file: Path) -> Project:
    """Read a project; raises InvalidSpec, UnreadableSpec or OSError."""
    located = read_yaml(file.read_text(encoding="utf-8"), str(file))
    check = _Check(located, file)
    project = check.project()
    if check.problems or project is None:
        raise InvalidSpec(check.problems)
    return project


def known_project(file: Path) -> Project | None:
    """The project in a file; None if it cannot be read now."""
    try:
        return read_project(file)
    except UNREADABLE:
        return None


class _Check:
    def __init__(self, located: Located, file: Path) -> None:
        self._located = located
        self._file = file
        self.problems: list[Problem] = []

    def _complain(self, place: Place, message: str) -> None:
        self.problems.append(Problem(place, self._located.file, self._located.line(place), message))

    def project(self) -> Project | None:
        document = self._located.document
        if not isinstance(document, Mapping):
            self._complain(
                (), f"found {shown(document)}; expected a mapping with name, storage and libraries"
            )
            return None
        for key in document:
            if key not in FIELDS:
                self._complain((key,), f"a project has no field {key!r}; {meant(key, FIELDS)}")
        name, storage = self._name(document), self._storage(document)
        settings = dict(self._settings(document))
        sources = tuple(self._sources(document))
        topics = {topic for each in sources for topic in self._topics(each)}
        return Project(self._file, name, storage, settings, sources, frozenset(topics))

    def _name(self, document: Mapping[str, Value]) -> str:
        name = document.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self._complain(("name",), f"found {shown(name)}; expected letters, digits, '.', '_' and '-'")
            return ""
        return name

    def _storage(self, document: Mapping[str, Value]) -> str:
        storage = document.get("storage")
        if not isinstance(storage, str) or not urlsplit(storage).scheme:
            self._complain(
                ("storage",),
                f"found {shown(storage)}; expected a URI, such as file:///var/lib/pipelines/orders",
            )
            return ""
        return storage

    def _settings(self, document: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
        given = document.get("configuration") or {}
        if not isinstance(given, Mapping):
            self._complain(
                ("configuration",), f"found {shown(given)}; expected a mapping of Spark's settings"
            )
            return
        for key, value in given.items():
            place = ("configuration", key)
            if not isinstance(value, str):
                self._complain(place, f"found {shown(value)}; Spark expects text: put it in quotes")
            elif key.startswith(PREFIX):
                name = key.removeprefix(PREFIX)
                complaint = setting_complaint(name, value)
                if complaint:
                    self._complain(place, complaint)
                yield name, value

    def _sources(self, document: Mapping[str, Value]) -> Iterator[Path]:
        given = document.get("libraries") or []
        if not isinstance(given, list):
            self._complain(("libraries",), f"found {shown(given)}; expected a list of 'glob: {{include: …}}'")
            return
        root = self._file.absolute().parent
        is_empty = True
        for at, entry in enumerate(given):
            pattern = _include(entry)
            if pattern is None or not _is_allowed(pattern):
                self._complain(
                    ("libraries", at),
                    "expected 'glob: {include: …}' with a file of the project, or a directory and /**",
                )
                is_empty = False
                continue
            for each in sorted(root.glob(f"{pattern}/*" if pattern.endswith("/**") else pattern)):
                if each.is_file() and "__pycache__" not in each.parts:
                    is_empty = False
                    if each.suffix in SOURCES:
                        yield each
                    else:
                        self._complain(("libraries", at), f"{each} is neither Python nor SQL")
        if is_empty:
            self._complain(("libraries",), "there are no files: the pipeline would have no tables")

    def _topics(self, source: Path) -> set[str]:
        """Topics that a file names. A file that is not Python is a problem."""
        if source.suffix != ".py":
            return set()
        try:
            return named_topics(ast.parse(source.read_bytes(), str(source)))
        except (SyntaxError, ValueError) as error:
            line, reason = getattr(error, "lineno", None), getattr(error, "msg", error)
            self.problems.append(Problem((), str(source), line, f"not Python: {reason}"))
            return set()


def _include(entry: Value) -> str | None:
    glob = entry.get("glob") if isinstance(entry, Mapping) else None
    include = glob.get("include") if isinstance(glob, Mapping) else None
    return include if isinstance(include, str) else None


def _is_allowed(pattern: str) -> bool:
    """Spark takes a file, or a directory with everything below it, both relative to the project."""
    return not pattern.startswith("/") and not _MAGIC.search(pattern.removesuffix("/**"))
