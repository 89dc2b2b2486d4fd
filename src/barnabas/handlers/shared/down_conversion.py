"""Down-conversion for old consumers: no zstd before Fetch v10, message formats 0 and 1 before v4.

Conversion reads the records into Python and costs work per record on the loop. So it runs in slices, and its
output is bounded for each partition and for the response. The consumer fetches the rest later.
"""

from __future__ import annotations

from barnabas.core.errors import UnsupportedCompressionType, UnsupportedVersion
from barnabas.core.regions import FileRegion
from barnabas.core.steps import Sliced
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.batch import whole_batches
from barnabas.records.legacy import convert_down
from barnabas.replication.partition.fetching import PartitionFetch
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error

VERSION_WITH_MAGIC_1 = 2
VERSION_WITH_BATCHES = 4
VERSION_WITH_ZSTD = 10
CONVERTED_BYTES_MAX = 1024 * 1024
"""Limit for one partition in one response, unless its first record alone is larger."""
CONVERTED_ANSWER_BYTES_MAX = 16 * CONVERTED_BYTES_MAX
"""Limit for all partitions in one response; the remaining partitions get no records this time."""


def fit_for_old_consumer(
    data: PartitionData, fetch: PartitionFetch, context: RequestContext, made_bytes: int
) -> Sliced[int]:
    """Convert the response of one partition, after `made_bytes` of others; return the bytes made."""
    yield from _fit(data, fetch, context, made_bytes)
    return len(data.records) if isinstance(data.records, bytearray) else 0


def _fit(
    data: PartitionData, fetch: PartitionFetch, context: RequestContext, made_bytes: int
) -> Sliced[None]:
    """Replace the records with converted ones, or with an error code."""
    region = data.records
    if not isinstance(region, FileRegion):
        return
    try:
        partition = context.broker.replicas.partition(*fetch.topic_partition)
        if partition.log.config.compression_type == "zstd":
            raise UnsupportedCompressionType("zstd needs Fetch version 10 or later")
        if context.api_version < VERSION_WITH_BATCHES:
            if not partition.log.config.message_downconversion_enable:
                raise UnsupportedVersion("message.downconversion.enable is false")
            magic = 1 if context.api_version >= VERSION_WITH_MAGIC_1 else 0
            if made_bytes >= CONVERTED_ANSWER_BYTES_MAX:
                data.records = b""
                return
            data.records = yield from convert_down(
                _front(region),
                magic,
                context.budget,
                first_offset=fetch.fetch_offset,
                bytes_max=CONVERTED_BYTES_MAX,
            )
            partition.metrics.fetch_conversions.value += 1
    except Exception as error:  # noqa: BLE001
        # This may run long after the request arrived, where no caller handles an exception.
        data.error_code = as_kafka_error(error, f"converting records of {fetch.topic_partition}").code
        data.records = b""


def _front(region: FileRegion) -> memoryview:
    """The whole batches to convert. No more is read, unless the first batch alone is larger."""
    some = FileRegion(region.file, region.position, min(region.length, CONVERTED_BYTES_MAX))
    found = whole_batches(some.read(), CONVERTED_BYTES_MAX)
    return found or whole_batches(region.read(), CONVERTED_BYTES_MAX)
