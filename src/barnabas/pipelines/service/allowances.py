"""What a configuration that comes over HTTP may name on the service's machine, and fetch from elsewhere.

Whoever may hand in a pipeline is not thereby somebody who may read every file that the service can read: a
reference, a store of keys or a token's file would bring its content to wherever the pipeline leads. So files
are named only inside of the directories that the service's settings allow, and the addresses of tokens are
those that they list. The names of these settings are Kafka's: those of Connect's providers of configuration,
and of `sasl.oauthbearer` (CVE-2024-31141, CVE-2025-27817). Every variable of the environment may be named
unless a pattern says otherwise, as in Kafka. Settings by which Spark loads code belong to whoever runs the
service, in Spark's own defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.core.errors import InvalidConfig
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.security.secret_references import REFERENCE, has_reference

PATHS = "config.providers.file.param.allowed.paths"
VARIABLES = "config.providers.env.param.allowlist.pattern"
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_FILES = re.compile(r"(?:kafka\.)?ssl\.[a-z.]+\.location")
_ADDRESSES = re.compile(r"(?:kafka\.)?sasl\.oauthbearer\.[a-z.]+\.url")

_LOADS_CODE = re.compile(
    r"spark\.(jars|jars\..+|files|archives|plugins.*|submit\..+|repl\..+|pyspark\..+|extraListeners"
    r"|(driver|executor)\.(extra|default|user).+|sql\.(extensions|queryExecutionListeners)"
    r"|sql\.streaming\.streamingQueryListeners|sql\.catalog\..+|sql\.hive\..+jars.*)"
)


class Allowances(NamedTuple):
    paths: tuple[Path, ...] = ()
    variables: re.Pattern[str] = re.compile(r".*", re.DOTALL)
    urls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Allowances:
        """Of the service's settings; INVALID_CONFIG if the pattern is none."""
        try:
            pattern = re.compile(properties.get(VARIABLES, ".*"), re.DOTALL)
        except re.error as error:
            raise InvalidConfig(f"{VARIABLES} is no pattern: {error.msg}") from None
        paths = (Path(each).resolve() for each in _words(properties.get(PATHS, "")))
        return cls(tuple(paths), pattern, frozenset(_words(properties.get(URLS, ""))))

    def complaints(self, spec: PipelineSpec) -> Iterator[str]:
        for name in spec.spark.conf:
            if _LOADS_CODE.fullmatch(name):
                yield f"{name} loads code into Spark: for whoever runs the service, in Spark's defaults"
        for name, text in _texts("", spec.to_document()):
            for kind, rest in REFERENCE.findall(text):
                if kind == "env" and self.variables.fullmatch(rest) is None:
                    yield f"{name}: ${{env:{rest}}} is no variable that {VARIABLES} allows"
                elif kind == "file" and not self._has(rest.partition(":")[0]):
                    yield f"{name}: ${{file:{rest}}} is no file inside of what {PATHS} allows"
            if _FILES.fullmatch(name) and not self._has(text):
                yield f"{name}: {text} is no file inside of what {PATHS} allows"
            if _ADDRESSES.fullmatch(name) and not self._may_fetch(text):
                yield f"{name}: {text} is neither allowed by {URLS} nor a file inside of what {PATHS} allows"

    def _has(self, text: str) -> bool:
        """Whether the file is inside, wherever links and dots lead; a reference leads anywhere."""
        if has_reference(text):
            return False
        place = Path(text).resolve()
        return any(place.is_relative_to(allowed) for allowed in self.paths)

    def _may_fetch(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme == "file":
            return parts.netloc in ("", "localhost") and self._has(unquote(parts.path))
        return url in self.urls


NOTHING_ALLOWED = Allowances()
"""Of files and addresses."""


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text, with the name under which it stands."""
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
