"""Typed model of a pipeline, the result of validation.

A spec is plain data: it goes into a topic, over HTTP and into another process as JSON. Secrets stay
references (`${env:X}`) in it. Only the code that opens a connection resolves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.options.sinks import EXACTLY_ONCE_SINKS


class Delivery(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Tolerance(Enum):
    NONE = "none"
    ALL = "all"


class Engine(Enum):
    AUTO = "auto"
    PYTHON = "python"
    JVM = "jvm"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class Part:
    """Source, transform or sink: its type, and its options with defaults filled in."""

    type: str
    options: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.options[name]

    def get(self, name: str, default: Value = None) -> Value:
        found = self.options.get(name)
        return default if found is None else found


@dataclass(frozen=True, slots=True)
class Errors:
    tolerance: Tolerance = Tolerance.NONE
    dead_letter_topic: str | None = None
    max_error_ratio: float = 1.0
    """A larger share of bad records in a micro-batch stops the pipeline."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Interval between micro-batches, or one pass over the available records."""

    interval_ms: int = 0
    available_now: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    max_attempts: int = 5
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000


@dataclass(frozen=True, slots=True)
class Spark:
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    name: str
    source: Part
    sink: Part
    transforms: tuple[Part, ...] = ()
    errors: Errors = Errors()
    trigger: Trigger = Trigger()
    delivery: Delivery = Delivery.EXACTLY_ONCE
    engine: Engine = Engine.AUTO
    restart: Restart = Restart()
    spark: Spark = Spark()

    @property
    def guarantee(self) -> Delivery:
        """Delivery that really holds, independent of the requested one."""
        if self.delivery is Delivery.EXACTLY_ONCE and self.sink.type in EXACTLY_ONCE_SINKS:
            return Delivery.EXACTLY_ONCE
        return Delivery.AT_LEAST_ONCE

    @property
    def output_mode(self) -> str:
        updates = any(part.type == "window" and part["emit"] == "updates" for part in self.transforms)
        return "update" if updates else "append"

    @property
    def group_id(self) -> str:
        """Consumer group that shows the pipeline's progress."""
        return str(self.source.get("group_id") or f"pipeline-{self.name}")

    @property
    def keeps_open_windows(self) -> bool:
        """Whether a bounded run leaves windows unwritten, which later rows would close."""
        return self.trigger.available_now and any(
            part.type == "window" and part["emit"] == "final" for part in self.transforms
        )

    @property
    def project_file(self) -> str | None:
        """Project file of a declarative pipeline, which Spark runs; None for every other pipeline."""
        return str(self.source["file"]) if self.source.type == "project" else None

    @property
    def own_groups(self) -> tuple[str, ...]:
        """Every group that holds offsets of the pipeline: its own, and those of its dead letters."""
        if self.project_file is not None:
            return ()  # its positions are in Spark's checkpoints alone
        return (self.group_id, f"{self.group_id}-dead-letters", f"{self.group_id}-quarantine")

    def to_document(self) -> dict[str, Any]:
        """Document for validation: loading it gives the same spec."""
        trigger: Value = "available_now" if self.trigger.available_now else f"{self.trigger.interval_ms} ms"
        return {
            "name": self.name,
            "source": _document(self.source),
            "transforms": [_document(part) for part in self.transforms],
            "sink": _document(self.sink),
            "errors": {
                "tolerance": self.errors.tolerance.value,
                "max_error_ratio": self.errors.max_error_ratio,
                **(
                    {"dead_letter_topic": self.errors.dead_letter_topic}
                    if self.errors.dead_letter_topic
                    else {}
                ),
            },
            "trigger": trigger,
            "delivery": self.delivery.value,
            "engine": self.engine.value,
            "restart": {
                "max_attempts": self.restart.max_attempts,
                "backoff": f"{self.restart.backoff_ms} ms",
                "backoff_max": f"{self.restart.backoff_ms_max} ms",
            },
            "spark": {
                **({"master": self.spark.master} if self.spark.master else {}),
                "conf": dict(self.spark.conf),
            },
        }


def _document(part: Part) -> dict[str, Value]:
    given = {name: value for name, value in part.options.items() if value is not None}
    plain = {name: _document(each) if isinstance(each, Part) else each for name, each in given.items()}
    return {"type": part.type, **plain}
