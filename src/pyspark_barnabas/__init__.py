"""`format("barnabas")`: Kafka topics on Spark, in Python, without a jar.

Spark looks for modules named `pyspark_*` and takes the `DefaultSource` of each, so installing this
package is all it takes. Read `source` for what Spark calls; `reader` and `stream_reader` plan on the
driver; `fetch` and `decode` run in the tasks; `writer` and `sink` go the other way.

Executors need this package, `barnabas`, numpy, pyarrow, crc32c, and of cramjam, lz4 and zstandard
those whose codecs their topics use.
"""

from pyspark_barnabas.arrange import exactly_once, exactly_once_batch_writer
from pyspark_barnabas.engines import read, read_segments, read_stream
from pyspark_barnabas.interpreter import use_this_python
from pyspark_barnabas.source import BarnabasDataSource as DefaultSource

use_this_python()

__all__ = [
    "DefaultSource",
    "exactly_once",
    "exactly_once_batch_writer",
    "read",
    "read_segments",
    "read_stream",
]
