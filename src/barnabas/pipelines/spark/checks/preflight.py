"""Preflight check before Spark starts: variables, files, packages and functions that a spec needs here.

A valid spec may name an environment variable, file or function that this machine lacks. That is not a mistake
where a spec is only validated or submitted to a service. Where it is about to run, this check reports it in a
moment instead of after a start of Spark.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path as FilePath
from urllib.parse import urlsplit

from barnabas.core.optional_dependencies import install_command
from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.options.databases import DRIVERS, dialect_of
from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.problems import InvalidSpec, Problem
from barnabas.pipelines.spec.yaml_source import Located, Path
from barnabas.security.identity.secret_references import UnresolvedSecret, has_reference, resolve

_PACKAGES = (
    ("delta", "deltalake", "delta"),
    ("iceberg", "pyiceberg", "iceberg"),
    ("avro", "fastavro", "formats"),
    ("protobuf", "google.protobuf", "formats"),
)
OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
PACKED = "spark.submit.pyFiles"
"""Modules arrive with Spark's start, so they cannot be checked before it."""


def check_machine(spec: PipelineSpec, located: Located) -> None:
    """Raises InvalidSpec with everything that is missing on this machine."""
    complaints = [*_unresolved(located.document, ()), *_missing_packages(spec)]
    if PACKED not in spec.spark.conf:
        complaints += _missing_functions(spec)
    if complaints:
        raise InvalidSpec(
            [Problem(path, located.file, located.line(path), message) for path, message in complaints]
        )


def _missing_packages(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    """Packages that a part needs beyond Spark, which are extras of the installation."""
    parts: list[tuple[Path, Part]] = [(("source",), spec.source), (("sink",), spec.sink)]
    parts += [
        (("transforms", at), part["source"]) for at, part in enumerate(spec.transforms) if part.type == "join"
    ]
    for path, part in parts:
        for kind, package, extra in _PACKAGES:
            if kind in (part.type, part.get("format")) and not _is_installed(package):
                yield path, f"{kind} needs the package {package}: {install_command(extra)}"
        if part.type == "table" and _is_in_object_store(part) and not _is_installed("obstore"):
            yield path, f"a table in an object store needs the package obstore: {install_command('objects')}"
        driver = _driver(part) if part.type == "jdbc" else None
        if driver is not None and not _is_installed(driver[0]):
            yield path, f"jdbc needs the package {driver[0]}: {install_command(driver[1])}"


def _is_in_object_store(part: Part) -> bool:
    places = [part.get("path"), (part.get("catalog") or {}).get("warehouse")]
    return any(urlsplit(str(place)).scheme in OBJECT_STORES for place in places if place)


def _driver(part: Part) -> tuple[str, str] | None:
    """Package and extra of a database's driver; None if it needs none, or its address is unknown here."""
    try:
        return DRIVERS.get(dialect_of(str(resolve(part["url"]))) or "")
    except UnresolvedSecret:  # reported with its place
        return None


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _missing_functions(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    for at, part in enumerate(spec.transforms):
        if part.type == "python" and not has_reference(part["function"]):
            complaint = _function_complaint(part["function"])
            if complaint:
                yield ("transforms", at), complaint


def _unresolved(value: Value, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _unresolved(each, (*path, name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _unresolved(each, (*path, at))
    elif has_reference(value):
        try:
            resolve(value)
        except UnresolvedSecret as error:
            yield path, str(error)


def _function_complaint(reference: str) -> str | None:
    """Complaint about a missing module or function. The module is parsed, not run: it may need Spark."""
    module, _, name = reference.partition(":")
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        return f"there is no module {module!r} here; looked in {', '.join(filter(None, sys.path))}"
    if found.origin is None or not found.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(FilePath(found.origin).read_text(encoding="utf-8"))
    except (OSError, SyntaxError) as error:
        return f"{found.origin} cannot be read: {error}"
    names = {each for node in tree.body for each in _bound(node)}
    if name in names or "*" in names:
        return None
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(names)) or 'nothing'}"
    return f"module {module!r} has no {name!r}; {hint}"


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement binds in its module; a block may bind any."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
        yield "*"
