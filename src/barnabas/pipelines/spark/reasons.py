"""The one sentence in a failed query's stack trace that a person needs, without secrets."""

from __future__ import annotations

import re

from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.security.secret_references import redact

_PYTHON = re.compile(
    r"^(?:[\w.]*\.)?([A-Z]\w*(?:Error|Exception|Failed|Missing|Loss|Fenced)\w*: .+)$", re.MULTILINE
)
_USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE|\n|$)")
_SILENT = re.compile(
    r"Python (?:planner )?worker process terminated due to idle timeout \(timeout: (\d+) seconds\)"
)
_CLASSED = re.compile(r"(\[[A-Z_.0-9]+\] .+?)(?: SQLSTATE|\n|$)")
LENGTH_MAX = 2_000


def reason_of(error: BaseException, spec: PipelineSpec) -> str:
    text = str(error)
    return scrub(_sentence(text), spec)[:LENGTH_MAX]


def scrub(text: str, spec: PipelineSpec) -> str:
    """No secret of the spec is left in `text`."""
    for part in (spec.source, spec.sink, *spec.transforms):
        text = redact(text, part.options)
    return redact(text, spec.spark.conf)


def _sentence(text: str) -> str:
    if found := _USER_RAISED.search(text):
        return found.group(1)
    if silent := _SILENT.search(text):
        return f"a Python worker said nothing for {silent.group(1)} s and was killed: is a function stuck?"
    if raised := _PYTHON.findall(text):
        return str(raised[-1])
    causes = [line[len("Caused by: ") :] for line in text.splitlines() if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    deeper = [each for each in _CLASSED.findall(text) if not each.startswith("[STREAM_FAILED]")]
    if deeper:
        return str(deeper[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
