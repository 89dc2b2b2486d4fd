"""`format("barnabas")`: Kafka topics on Spark, in Python, without a jar.

Spark looks for modules named `pyspark_*` and takes the `DefaultSource` of each, so installing this
package is all it takes. Read `source` for what Spark calls; `reader` and `stream_reader` plan on the
driver; `fetch` and `decode` run in the tasks; `writer` and `sink` go the other way.

Executors need this package, `barnabas`, numpy, pyarrow, crc32c, and of cramjam, lz4 and zstandard
those whose codecs their topics use.

Spark has a Python process for each step on the way to a query, and each of them imports this package.
So it imports nothing before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark_barnabas.interpreter import use_this_python

if TYPE_CHECKING:
    from pyspark_barnabas.arrange import exactly_once, exactly_once_batch_writer
    from pyspark_barnabas.engines import read, read_segments, read_stream
    from pyspark_barnabas.source import BarnabasDataSource as DefaultSource

_HOMES: Final = {
    "DefaultSource": ("source", "BarnabasDataSource"),
    "exactly_once": ("arrange", "exactly_once"),
    "exactly_once_batch_writer": ("arrange", "exactly_once_batch_writer"),
    "read": ("engines", "read"),
    "read_segments": ("engines", "read_segments"),
    "read_stream": ("engines", "read_stream"),
}

use_this_python()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, there = _HOMES[name]
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), there)
    return found


__all__ = [
    "DefaultSource",
    "exactly_once",
    "exactly_once_batch_writer",
    "read",
    "read_segments",
    "read_stream",
]
