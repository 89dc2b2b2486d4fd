"""DescribeLogDirs (35), v1-5. Gaps: no cordoned directories.

Log sizes per directory, and the size of the volume that holds it. An offline directory is listed with its
error and nothing else.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from barnabas.core.errors import KafkaError, KafkaStorageError
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.storage.files.environment import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager

VERSION_WITH_ERROR = 3
"""Since this version the response has an error of its own, apart from those of the directories."""


def handle_describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> Sliced[DescribeLogDirsResponse]:
    manager = context.broker.replicas.log_manager
    asked: set[TopicPartition] | None = None
    if request.topics is not None:
        asked = {TopicPartition(topic.topic, each) for topic in request.topics for each in topic.partitions}
    logs: defaultdict[str, list[Log]] = defaultdict(list)
    for log in (*manager.logs(), *manager.futures()):
        if asked is None or log.topic_partition in asked:
            logs[log.log_directory.path].append(log)
    results = []
    for directory in manager.directories:
        result = yield from _describe(directory, logs[directory.path], manager)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _describe(directory: LogDirectory, logs: list[Log], manager: LogManager) -> Sliced[DescribeLogDirsResult]:
    path = str(Path(directory.path).absolute())
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=path)
    try:
        volume = os.statvfs(directory.path)
    except OSError:
        return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=path)
    by_topic: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for log in logs:
        yield
        by_topic[log.topic_partition.topic].append(
            DescribeLogDirsPartition(
                partition_index=log.topic_partition.partition,
                partition_size=log.segments.size_bytes,
                offset_lag=_lag(log, manager),
                is_future_key=manager.future(log.topic_partition) is log,
            )
        )
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
    )


def _lag(log: Log, manager: LogManager) -> int:
    """Offset lag of a future replica, on its way to another directory."""
    current = manager.get(log.topic_partition)
    return 0 if current is None or current is log else max(current.log_end_offset - log.log_end_offset, 0)


def _refused(_: DescribeLogDirsRequest, error: KafkaError, version: int) -> DescribeLogDirsResponse:
    if version >= VERSION_WITH_ERROR:
        return DescribeLogDirsResponse(error_code=error.code)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=error.code)])


DESCRIBE_LOG_DIRS = Api(ApiKey.DESCRIBE_LOG_DIRS, handle=handle_describe_log_dirs, refused=_refused)
