"""AlterReplicaLogDirs (34), v1-2. Gaps: a replica that is not on this broker yet cannot be given a directory
in advance.

Moves replicas between the log directories of this broker. The response confirms that the move has begun.
DescribeLogDirs shows its progress.
"""

from __future__ import annotations

from collections import defaultdict

from barnabas.core.errors import NONE, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api


def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Sliced[AlterReplicaLogDirsResponse]:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            yield
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[])
            )
            for index in topic.partitions:
                yield
                code = _move(TopicPartition(topic.name, index), directory.path, context)
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(topic_partition: TopicPartition, path: str, context: RequestContext) -> int:
    try:
        context.broker.replicas.mover.move(topic_partition, path)
    except Exception as error:  # noqa: BLE001 - each partition has its own answer
        return as_kafka_error(error, f"moving {topic_partition}").code
    return NONE


def _refused(request: AlterReplicaLogDirsRequest, error: KafkaError, _: int) -> AlterReplicaLogDirsResponse:
    named: defaultdict[str, list[int]] = defaultdict(list)
    for directory in request.dirs:
        for topic in directory.topics:
            named[topic.name] += topic.partitions
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in indexes
                ],
            )
            for name, indexes in named.items()
        ]
    )


ALTER_REPLICA_LOG_DIRS = Api(
    ApiKey.ALTER_REPLICA_LOG_DIRS, handle=handle_alter_replica_log_dirs, refused=_refused
)
