"""Run context for sources, transforms and sinks, and the failures of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.options.option import Value
from barnabas.security.identity.secret_references import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PipelineFailed(Exception):
    """A pipeline cannot be built or cannot continue. The message is for the user."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        """Path of the faulty part in the spec, where known."""


class Unavailable(PipelineFailed):
    """A broker, database or topic does not exist yet, and may appear later."""


class Away(Unavailable):
    """A broker, database or registry is out of reach, or a first record is missing. Waiting is not a failed
    attempt."""


class PipelineInvalid(PipelineFailed):
    """A pipeline cannot be built; no further attempt would succeed."""


class TooManyErrors(PipelineFailed):
    """More bad records than the spec allows; the user decides whether the pipeline continues."""


class Beginning(Enum):
    """Choice for a run without a checkpoint whose group has committed offsets."""

    ONCE = "once"
    """The run is refused."""
    FROM_GROUP = "from group"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Run:
    spark: SparkSession
    spec: PipelineSpec
    bootstrap: str
    state_location: str
    """Directory for the pipeline's state, or a URL that every machine reaches."""
    generation: int = 0
    """Grows when offsets are reset: a new generation begins with an empty checkpoint."""
    is_main_source: bool = True
    """False for the other side of a join: only records of the main source are counted."""
    is_confined: bool = False
    """True if the spec came over HTTP: its SQL is restricted (`confinement`)."""
    beginning: Beginning = Beginning.ONCE
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """Records that break the transforms, by `topic/partition/offset`, with the reason."""
    is_untransformed: bool = False
    """True if the sink gets the rows of the source as they were decoded."""
    counts: dict[int, int] = field(default_factory=dict)
    """Records of micro-batches that the sink read itself, so that Spark has not counted them."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Figures of the sink after its last micro-batch, for the progress report; the sink fills it."""

    @property
    def directory(self) -> str:
        return f"{self.state_location.rstrip('/')}/{self.spec.name}/{self.generation}"

    def checkpoint(self, purpose: str = "checkpoint") -> str:
        return f"{self.directory}/{purpose}"

    def bootstrap_of(self, part: Part) -> str:
        given = resolve(part.get("bootstrap") or self.bootstrap)
        return given if isinstance(given, str) else ",".join(given)

    def resolved(self, part: Part, name: str) -> Value:
        """Option with its secrets resolved. The caller uses it at once and does not store it."""
        return resolve(part.get(name))


class Rows(NamedTuple):
    """Output of a source: decoded rows, and records that could not be decoded."""

    good: DataFrame
    bad: DataFrame | None = None
    """Columns: key, value, topic, partition, offset, timestamp, headers and error."""
