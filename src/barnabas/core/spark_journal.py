"""The text of a file in the `offsets` of a Spark checkpoint: how far each source is read by a micro-batch.

Spark writes it before it runs the batch: a line with a version, a line of metadata, and a line per
source. Whoever knows where the checkpoint lies reads the file; what it says is read here alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def source_offsets(text: str) -> Iterator[dict[str, Any]]:
    """Of every source whose offsets are a JSON object: topics are `{"topic": {"0": 5}}`."""
    for line in text.splitlines()[2:]:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
