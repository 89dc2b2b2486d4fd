"""Names of data files: query, generation, batch, task and attempt, to recognise leftovers.

`part-q<query>-g0-b12-t3-a7-r9f3ab2c1-0.zstd.parquet` is the first file of attempt 7 at task 3, in batch 12
of generation 0. The run, a random number of the driver, keeps two drivers apart that run the same batch:
Spark counts attempts from zero in each. Files that the driver writes itself have a word instead of the
task: `keep` for the remaining rows of a file with replaced ones, `compact` for small files in one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

KEEP = "keep"
COMPACT = "compact"
_NAME = re.compile(r"part-q([0-9a-f]+)-g(\d+)-b(\d+)-t(\w+)-a(\d+)-r([0-9a-f]+)-(\d+)\..+")
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
DIRECTORY_CHARACTERS_MAX = 200


class Found(NamedTuple):
    """A file below the root of a table."""

    path: str
    """Relative to the root."""
    size: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class BatchName:
    """A batch of a query, in a run of its driver."""

    query: str
    generation: int
    batch_id: int
    run: str

    def file(self, task: int | str, attempt: int, number: int, codec: str) -> str:
        query = self.query.replace("-", "")
        return (
            f"part-q{query}-g{self.generation}-b{self.batch_id}-t{task}-a{attempt}-r{self.run}-{number}"
            f".{codec}.parquet"
        )

    def owns(self, path: str) -> bool:
        """True for a file of this batch, by any attempt of any driver."""
        found = _NAME.fullmatch(path.rpartition("/")[2])
        if found is None:
            return False
        query, generation, batch_id = found.group(1, 2, 3)
        wanted = (self.query.replace("-", ""), str(self.generation), str(self.batch_id))
        return (query, generation, batch_id) == wanted


def new_run() -> str:
    return uuid.uuid4().hex[:8]


def partition_directory(values: Mapping[str, str | None]) -> str:
    """Directory of a partition, in Hive's form: some readers take the values from it."""
    return "".join(f"{_escaped(name)}={_escaped(value)}/" for name, value in values.items())


def _escaped(text: str | None) -> str:
    escaped = NULL_DIRECTORY if text is None else quote(text, safe="")
    if len(escaped) > DIRECTORY_CHARACTERS_MAX:
        raise ValueError(f"{text!r} is too long for a partition, which is a directory")
    return escaped
