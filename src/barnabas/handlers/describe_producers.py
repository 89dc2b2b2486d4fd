"""DescribeProducers (61), v0. Gaps: none.

Producer state of a partition at its leader: idempotent and transactional producers. A partition that is named
again is answered once (ADR 32): it may have many producers.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition, check_topic_name
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import partition_code_and_message
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.storage.producers.producer_entry import ProducerEntry


def handle_describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> Sliced[DescribeProducersResponse]:
    answered: set[TopicPartition] = set()
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            topic_partition = TopicPartition(topic.name, index)
            if topic_partition not in answered:
                answered.add(topic_partition)
                partitions.append((yield from _describe(topic_partition, context)))
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield
    return DescribeProducersResponse(topics=topics)


def _describe(topic_partition: TopicPartition, context: RequestContext) -> Sliced[PartitionResponse]:
    answer = PartitionResponse(partition_index=topic_partition.partition)
    try:
        context.require(Operation.READ, ResourceType.TOPIC, topic_partition.topic)
        check_topic_name(topic_partition.topic)
        log = context.broker.replicas.partition(*topic_partition).log
    except KafkaError as error:
        answer.error_code, answer.error_message = partition_code_and_message(error)
    else:
        active = log.active_producers()
        context.budget.spend_elements(len(active))
        answer.active_producers = yield from each(active, _state)
    return answer


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )


DESCRIBE_PRODUCERS = Api(ApiKey.DESCRIBE_PRODUCERS, handle=handle_describe_producers)
