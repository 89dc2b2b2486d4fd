"""A request for each row of the table of rights: one for which that row decides.

Topics, groups and transactional ids begin with the names below, and so do the rules: resources that a request
deletes or creates have longer names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from barnabas.protocol.schema.message import Message
from tests.support.wire import batch

TOPIC, GROUP, TRANSACTION = "orders", "readers", "payments"
NAMES = {2: TOPIC, 3: GROUP, 5: TRANSACTION}
"""By the type of the resource."""


class World(NamedTuple):
    """Prepared resources of the broker."""

    topic_id: Uuid
    deletable_id: Uuid
    producer_id: int
    producer_epoch: int


class Case(NamedTuple):
    build: Callable[[World], Message]
    version_max: int | None = None
    is_repeatable: bool = True
    hidden: Callable[[World], Any] | None = None
    """Part that the answer leaves out, if that is not the resource's name."""


def _produce(attributes: int, transactional_id: str | None) -> Callable[[World], Message]:
    def build(world: World) -> Message:
        idempotent: dict[str, Any] = {}
        if attributes:
            idempotent = {
                "producer_id": world.producer_id,
                "producer_epoch": world.producer_epoch,
                "base_sequence": 0,
            }
        records = batch((b"value",), attributes=attributes, **idempotent)
        data = produce.PartitionProduceData(index=0, records=records)
        return produce.ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=[data])],
        )

    return build


def fetch_as(replica_id: int) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            fetch.FetchTopic(
                topic=TOPIC, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
            )
        ],
    )


def _metadata(**fields: Any) -> Callable[[World], Message]:
    def build(_: World) -> Message:
        request = metadata.MetadataRequest(allow_auto_topic_creation=False)
        request.topics = []
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    return build


def _named(name: str) -> list[metadata.MetadataRequestTopic]:
    return [metadata.MetadataRequestTopic(name=name)]


def _commit_topics() -> list[offset_commit.OffsetCommitRequestTopic]:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]


def commit(group: str = GROUP) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=_commit_topics()
    )


def _offset_fetch(topics: list[offset_fetch.OffsetFetchRequestTopic] | None) -> Callable[[World], Message]:
    return lambda _: offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=topics)


def _offset_topics() -> list[offset_fetch.OffsetFetchRequestTopic]:
    return [offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]


def _txn_commit(world: World) -> Message:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def _add_partitions(world: World) -> Message:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=world.producer_id,
        v3_and_below_producer_epoch=world.producer_epoch,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )


def _verify_partitions(world: World) -> Message:
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTION,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        verify_only=True,
        topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def _markers(world: World) -> Message:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=world.producer_id + 1_000_000,
        producer_epoch=0,
        transaction_result=False,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _describe_configs(kind: int, name: str) -> Case:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[]
    )
    return Case(lambda _: describe_configs.DescribeConfigsRequest(resources=[resource]))


def _alter_configs(module: Any, request: Any, kind: int, name: str) -> Case:
    resource = module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
    return Case(lambda _: request(resources=[resource], validate_only=True))


def heartbeat_of(group: str, topics: list[str]) -> Message:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )


_GROUP_NUMBERS = itertools.count()


def _heartbeat_by_pattern() -> Message:
    """In a group of its own: a group remembers what a pattern matched."""
    request = heartbeat_of(f"{GROUP}.pattern{next(_GROUP_NUMBERS)}", [])
    request.subscribed_topic_regex = f"{TOPIC}.*"  # type: ignore[attr-defined]
    return request


def _creation() -> create_acls.AclCreation:
    return create_acls.AclCreation(
        resource_type=2,
        resource_name="other",
        principal="User:other",
        host="192.0.2.1",
        operation=3,
        permission_type=3,
    )


def _nothing() -> dict[str, Any]:
    """A filter that finds no rule."""
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "nothing",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _partitions_of(request: Any, topic: Any, **fields: Any) -> Case:
    return Case(lambda _: request(topics=[topic(name=TOPIC, **fields)]))


CASES: dict[ApiKey, list[Case]] = {
    ApiKey.PRODUCE: [Case(_produce(0x10, TRANSACTION), 11), Case(_produce(0, None), 11)],
    ApiKey.FETCH: [Case(lambda _: fetch_as(-1), 12), Case(lambda _: fetch_as(7), 12)],
    ApiKey.LIST_OFFSETS: [
        _partitions_of(
            list_offsets.ListOffsetsRequest,
            list_offsets.ListOffsetsTopic,
            partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
        )
    ],
    ApiKey.METADATA: [
        Case(_metadata(topics=_named(TOPIC))),
        Case(_metadata(topics=None)),
        Case(_metadata(topics=_named(f"{TOPIC}.made"), allow_auto_topic_creation=True)),
        Case(_metadata(include_cluster_authorized_operations=True), 10),
    ],
    ApiKey.OFFSET_COMMIT: [Case(lambda _: commit(), 9)] * 2,
    ApiKey.OFFSET_FETCH: [
        Case(_offset_fetch(_offset_topics()), 7),
        Case(_offset_fetch(_offset_topics()), 7),
        Case(_offset_fetch(None), 7),
    ],
    ApiKey.FIND_COORDINATOR: [
        Case(lambda _: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])),
        Case(lambda _: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION])),
    ],
    ApiKey.JOIN_GROUP: [
        Case(
            lambda _: join_group.JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="nobody",
                protocol_type="consumer",
                protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
        )
    ],
    ApiKey.HEARTBEAT: [
        Case(lambda _: heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="nobody"))
    ],
    ApiKey.LEAVE_GROUP: [
        Case(
            lambda _: leave_group.LeaveGroupRequest(
                group_id=GROUP, members=[leave_group.MemberIdentity(member_id="nobody")]
            )
        )
    ],
    ApiKey.SYNC_GROUP: [
        Case(
            lambda _: sync_group.SyncGroupRequest(
                group_id=GROUP,
                generation_id=1,
                member_id="nobody",
                protocol_type="consumer",
                protocol_name="range",
            )
        )
    ],
    ApiKey.DESCRIBE_GROUPS: [Case(lambda _: describe_groups.DescribeGroupsRequest(groups=[GROUP]))],
    ApiKey.LIST_GROUPS: [Case(lambda _: list_groups.ListGroupsRequest())],
    ApiKey.CREATE_TOPICS: [
        Case(
            lambda _: create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(name=f"{TOPIC}.new", num_partitions=1, replication_factor=1)
                ],
                timeout_ms=10_000,
                validate_only=True,
            )
        )
    ]
    * 2,
    ApiKey.DELETE_TOPICS: [
        Case(
            lambda _: delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=f"{TOPIC}.gone")], timeout_ms=10_000
            )
        ),
        Case(
            lambda world: delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=None, topic_id=world.deletable_id)],
                timeout_ms=10_000,
            ),
            is_repeatable=False,
        ),
    ],
    ApiKey.DELETE_RECORDS: [
        Case(
            lambda _: delete_records.DeleteRecordsRequest(
                topics=[
                    delete_records.DeleteRecordsTopic(
                        name=TOPIC,
                        partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)],
                    )
                ],
                timeout_ms=10_000,
            )
        )
    ],
    ApiKey.INIT_PRODUCER_ID: [
        Case(
            lambda _: init_producer_id.InitProducerIdRequest(
                transactional_id=f"{TRANSACTION}.new", transaction_timeout_ms=60_000
            )
        ),
        Case(
            lambda _: init_producer_id.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000
            )
        ),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        Case(
            lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        topic=TOPIC,
                        partitions=[
                            offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                        ],
                    )
                ]
            )
        )
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        Case(_add_partitions, 3),
        Case(_add_partitions, 3),
        Case(_verify_partitions),
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [
        Case(
            lambda world: add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=TRANSACTION,
                producer_id=world.producer_id,
                producer_epoch=world.producer_epoch,
                group_id=GROUP,
            )
        )
    ]
    * 2,
    ApiKey.END_TXN: [
        Case(
            lambda _: end_txn.EndTxnRequest(
                transactional_id=TRANSACTION, producer_id=12345, producer_epoch=0, committed=False
            )
        )
    ],
    ApiKey.WRITE_TXN_MARKERS: [Case(_markers)],
    ApiKey.TXN_OFFSET_COMMIT: [Case(_txn_commit, 3)] * 3,
    ApiKey.DESCRIBE_ACLS: [Case(lambda _: describe_acls.DescribeAclsRequest(**_nothing()))],
    ApiKey.CREATE_ACLS: [Case(lambda _: create_acls.CreateAclsRequest(creations=[_creation()]))],
    ApiKey.DELETE_ACLS: [
        Case(lambda _: delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**_nothing())]))
    ],
    ApiKey.DESCRIBE_CONFIGS: [
        _describe_configs(2, TOPIC),
        _describe_configs(4, ""),
        _describe_configs(32, GROUP),
    ],
    ApiKey.ALTER_CONFIGS: [
        _alter_configs(alter_configs, alter_configs.AlterConfigsRequest, kind, name)
        for kind, name in ((2, TOPIC), (4, ""), (32, GROUP))
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [
        Case(
            lambda _: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                dirs=[
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        path="/nowhere",
                        topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])],
                    )
                ]
            )
        )
    ],
    ApiKey.DESCRIBE_LOG_DIRS: [Case(lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=None))],
    ApiKey.CREATE_PARTITIONS: [
        Case(
            lambda _: create_partitions.CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)],
                timeout_ms=10_000,
                validate_only=True,
            )
        )
    ],
    ApiKey.DELETE_GROUPS: [Case(lambda _: delete_groups.DeleteGroupsRequest(groups_names=[f"{GROUP}.gone"]))],
    ApiKey.ELECT_LEADERS: [
        Case(
            lambda _: elect_leaders.ElectLeadersRequest(
                topic_partitions=[elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0])],
                timeout_ms=10_000,
            )
        )
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        _alter_configs(
            incremental_alter_configs, incremental_alter_configs.IncrementalAlterConfigsRequest, kind, name
        )
        for kind, name in ((2, TOPIC), (4, ""), (32, GROUP))
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
        Case(lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]))
    ],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [
        Case(lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None))
    ],
    ApiKey.OFFSET_DELETE: [
        Case(
            lambda _: offset_delete.OffsetDeleteRequest(
                group_id=f"{GROUP}.kept",
                topics=[
                    offset_delete.OffsetDeleteRequestTopic(
                        name=TOPIC,
                        partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=7)],
                    )
                ],
            )
        )
    ]
    * 2,
    ApiKey.DESCRIBE_CLUSTER: [
        Case(
            lambda _: describe_cluster.DescribeClusterRequest(
                include_cluster_authorized_operations=True, endpoint_type=1
            )
        )
    ],
    ApiKey.DESCRIBE_PRODUCERS: [
        _partitions_of(
            describe_producers.DescribeProducersRequest,
            describe_producers.TopicRequest,
            partition_indexes=[0],
        )
    ],
    ApiKey.DESCRIBE_TRANSACTIONS: [
        Case(lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]))
    ]
    * 2,
    ApiKey.LIST_TRANSACTIONS: [Case(lambda _: list_transactions.ListTransactionsRequest())],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        *[Case(lambda _: heartbeat_of(f"{GROUP}.new", [TOPIC]))] * 2,
        Case(lambda _: _heartbeat_by_pattern(), hidden=lambda world: world.topic_id),
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [
        Case(lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[f"{GROUP}.consumer"]))
    ]
    * 2,
    ApiKey.LIST_CONFIG_RESOURCES: [Case(lambda _: list_config_resources.ListConfigResourcesRequest())],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        Case(
            lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[describe_topic_partitions.TopicRequest(name=TOPIC)], response_partition_limit=100
            )
        ),
        Case(
            lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[], response_partition_limit=100
            )
        ),
    ],
}
