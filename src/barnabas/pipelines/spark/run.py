"""What a source, transform or sink is given when a pipeline is put together for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.options import Value
from barnabas.security.secret_references import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PipelineFailed(Exception):
    """A pipeline cannot be put together or go on; the message is for a person."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        """Of what is at fault in the spec, where that is known."""


class Unavailable(PipelineFailed):
    """Something is not there that may come: a broker, a database, a topic, the first record."""


class PipelineInvalid(PipelineFailed):
    """A pipeline that cannot be put together: no further attempt will do better."""


@dataclass(frozen=True, slots=True)
class Run:
    spark: SparkSession
    spec: PipelineSpec
    bootstrap: str
    state_location: str
    """Directory, or URL of one that every machine sees, under which the pipeline's state lies."""
    generation: int = 0
    """Grows when offsets are reset: a new generation begins with an empty checkpoint."""
    is_main_source: bool = True
    """False while the other side of a join is read: only the main source's records are counted."""
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """Records that break the transforms, by `topic/partition/offset`, with why."""

    @property
    def home(self) -> str:
        return f"{self.state_location.rstrip('/')}/{self.spec.name}/{self.generation}"

    def checkpoint(self, purpose: str = "checkpoint") -> str:
        return f"{self.home}/{purpose}"

    def bootstrap_of(self, part: Part) -> str:
        given = resolve(part.get("bootstrap") or self.bootstrap)
        return given if isinstance(given, str) else ",".join(given)

    def resolved(self, part: Part, name: str) -> Value:
        """An option with its secrets; the caller uses it at once and keeps it nowhere."""
        return resolve(part.get(name))


class Rows(NamedTuple):
    """What a source gives: rows that were read, and records that could not be."""

    good: DataFrame
    bad: DataFrame | None = None
    """With the columns key, value, topic, partition, offset, timestamp, headers and error."""
