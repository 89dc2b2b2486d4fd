"""An offset in the form that Connect gives it over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.pipelines.service.errors import ServiceError


def offset_row(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": {"kafka_offset": offset},
    }


def place_and_offset(row: Mapping[str, Any]) -> tuple[str, int, int]:
    try:
        place = row["partition"]
        return str(place["kafka_topic"]), int(place["kafka_partition"]), int(row["offset"]["kafka_offset"])
    except (KeyError, TypeError, ValueError):
        raise ServiceError(
            400,
            "An offset is {'partition': {'kafka_topic': …, 'kafka_partition': …},"
            f" 'offset': {{'kafka_offset': …}}}}; found {dict(row)}",
        ) from None
