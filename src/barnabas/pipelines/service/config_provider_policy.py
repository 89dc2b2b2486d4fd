"""Policy for files, variables and URLs in configurations that arrive over HTTP.

A client that may submit a pipeline must not thereby read every file that the service can read. A reference, a
key store or a token file would carry its content to the pipeline's sink. So files are allowed only inside the
directories of the service's settings, and token URLs only from their list. These settings have Kafka's names:
those of Connect's config providers and of `sasl.oauthbearer` (CVE-2024-31141, CVE-2025-27817). Every
environment variable is allowed unless a pattern restricts them, as in Kafka.

Settings that make Spark load code belong to the operator of the service, in Spark's own defaults. SQL
anywhere in a spec calls no Java, starts no program and reads no files past these rules (`spec.sql_calls`). It
must not be a reference, which would hide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.core.errors import InvalidConfig
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.sql_calls import forbidden_calls, sql_texts
from barnabas.security.identity.secret_references import REFERENCE, has_reference

PATHS = "config.providers.file.param.allowed.paths"
VARIABLES = "config.providers.env.param.allowlist.pattern"
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_FILES = re.compile(r"(?:kafka\.)?ssl\.[a-z.]+\.location")
_ADDRESSES = re.compile(r"(?:kafka\.)?sasl\.oauthbearer\.[a-z.]+\.url")

_LOADS_CODE = re.compile(
    r"spark\.(jars|jars\..+|files|archives|plugins.*|submit\..+|repl\..+|pyspark\..+|extraListeners"
    r"|(driver|executor)\.(extra|default|user).+|sql\.(extensions|queryExecutionListeners)"
    r"|sql\.streaming\.streamingQueryListeners|sql\.catalog\..+|sql\.hive\..+jars.*|sql\.(runSQLOnFiles|variable\.substitute))"
)


class Allowances(NamedTuple):
    paths: tuple[Path, ...] = ()
    variables: re.Pattern[str] = re.compile(r".*", re.DOTALL)
    urls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Allowances:
        """Policy from the service's settings; INVALID_CONFIG if the pattern is invalid."""
        try:
            pattern = re.compile(properties.get(VARIABLES, ".*"), re.DOTALL)
        except re.error as error:
            raise InvalidConfig(f"{VARIABLES} is not a regular expression: {error.msg}") from None
        paths = (Path(each).resolve() for each in _words(properties.get(PATHS, "")))
        return cls(tuple(paths), pattern, frozenset(_words(properties.get(URLS, ""))))

    def complaints(self, spec: PipelineSpec) -> Iterator[str]:
        for name in spec.spark.conf:
            if _LOADS_CODE.fullmatch(name):
                yield f"{name} loads code into Spark: only the operator may set it, in Spark's defaults"
        yield from _sql_complaints(spec)
        for name, text in _texts("", spec.to_document()):
            for kind, rest in REFERENCE.findall(text):
                if kind == "env" and self.variables.fullmatch(rest) is None:
                    yield f"{name}: ${{env:{rest}}} is not a variable that {VARIABLES} allows"
                elif kind == "file" and not self._has(rest.partition(":")[0]):
                    yield f"{name}: ${{file:{rest}}} is not in a directory that {PATHS} allows"
            if _FILES.fullmatch(name) and not self._has(text):
                yield f"{name}: {text} is not in a directory that {PATHS} allows"
            if _ADDRESSES.fullmatch(name) and not self._may_fetch(text):
                yield f"{name}: {text} is neither allowed by {URLS} nor in a directory that {PATHS} allows"

    def _has(self, text: str) -> bool:
        """True if the file is in an allowed directory after links and dots are resolved; a reference never
        is."""
        if has_reference(text):
            return False
        path = Path(text).resolve()
        return any(path.is_relative_to(allowed) for allowed in self.paths)

    def _may_fetch(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme == "file":
            return parts.netloc in ("", "localhost") and self._has(unquote(parts.path))
        return url in self.urls


NOTHING_ALLOWED = Allowances()
"""No files and no URLs are allowed."""


def _sql_complaints(spec: PipelineSpec) -> Iterator[str]:
    for name, text in sql_texts(spec):
        if has_reference(text):
            yield f"{name}: SQL with a reference in it cannot be checked; expected the text itself"
        yield from (f"{name}: the SQL {complaint}" for complaint in forbidden_calls(text))


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text, with the name of its option."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(str(key), each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(name, each)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
