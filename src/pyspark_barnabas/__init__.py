"""`format("barnabas")`: Kafka topics on Spark, in Python, without a jar.

Spark imports every module named `pyspark_*` and registers its `DefaultSource`, so installing this package is
enough.

- `source`: the data source that Spark calls.
- `readers`: the driver plans offset ranges; tasks fetch and decode them.
- `writers`: tasks write rows; the driver commits them.
- `produce`: rows to record batches to Produce requests.

Executors need this package, `barnabas`, numpy, pyarrow and crc32c. They also need those of cramjam, lz4 and
zstandard whose codecs the topics use.

Spark starts a Python process for each step of planning a query, and each process imports this package. So the
package imports a module only when one of its names is used. No subpackage may have the name of one of these
functions: importing it would replace the function.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark_barnabas.worker.python_executable import use_this_python

if TYPE_CHECKING:
    from pyspark_barnabas.engines import read, read_segments, read_stream
    from pyspark_barnabas.progress import offsets_behind_latest
    from pyspark_barnabas.source import BarnabasDataSource as DefaultSource
    from pyspark_barnabas.writers.repartition import exactly_once, exactly_once_batch_writer

_MODULES: Final = {
    "DefaultSource": ("source", "BarnabasDataSource"),
    "exactly_once": ("writers.repartition", "exactly_once"),
    "exactly_once_batch_writer": ("writers.repartition", "exactly_once_batch_writer"),
    "offsets_behind_latest": ("progress", "offsets_behind_latest"),
    "read": ("engines", "read"),
    "read_segments": ("engines", "read_segments"),
    "read_stream": ("engines", "read_stream"),
}

use_this_python()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _MODULES[name]
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


__all__ = [
    "DefaultSource",
    "exactly_once",
    "exactly_once_batch_writer",
    "offsets_behind_latest",
    "read",
    "read_segments",
    "read_stream",
]
