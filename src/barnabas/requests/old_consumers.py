"""What old consumers get: no zstd before Fetch v10, and before v4 messages of formats 0 and 1 for batches.

Converting reads the records into Python and costs work per record, on the loop; so one answer is kept small,
and the consumer comes back for more.
"""

from __future__ import annotations

from barnabas.core.errors import UnsupportedCompressionType, UnsupportedVersion
from barnabas.core.regions import FileRegion
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.legacy import convert_down
from barnabas.records.whole import whole_batches
from barnabas.replication.fetching import PartitionFetch
from barnabas.requests.context import RequestContext
from barnabas.requests.failures import as_kafka_error

VERSION_WITH_MAGIC_1 = 2
VERSION_WITH_BATCHES = 4
VERSION_WITH_ZSTD = 10
CONVERTED_BYTES_MAX = 1024 * 1024
"""Of one partition in one answer, unless its first batch alone is larger."""


def fit_for_old_consumer(data: PartitionData, ask: PartitionFetch, context: RequestContext) -> None:
    """Turn the answer into one that the consumer understands, or into the error that says why not."""
    region = data.records
    if not isinstance(region, FileRegion):
        return
    try:
        partition = context.broker.replicas.partition(*ask.topic_partition)
        if partition.log.config.compression_type == "zstd":
            raise UnsupportedCompressionType("zstd needs Fetch version 10 or later")
        if context.api_version < VERSION_WITH_BATCHES:
            if not partition.log.config.message_downconversion_enable:
                raise UnsupportedVersion("message.downconversion.enable is false")
            magic = 1 if context.api_version >= VERSION_WITH_MAGIC_1 else 0
            data.records = convert_down(_front(region), magic, first_offset=ask.fetch_offset)
            partition.metrics.fetch_conversions.value += 1
    except Exception as error:  # noqa: BLE001
        # This may run long after the request came, where nobody else would answer it.
        data.error_code = as_kafka_error(error, f"converting records of {ask.topic_partition}").code
        data.records = b""


def _front(region: FileRegion) -> memoryview:
    """The whole batches to convert; no more is read, unless the first one alone is larger."""
    some = FileRegion(region.file, region.position, min(region.length, CONVERTED_BYTES_MAX))
    found = whole_batches(some.read(), CONVERTED_BYTES_MAX)
    return found or whole_batches(region.read(), CONVERTED_BYTES_MAX)
