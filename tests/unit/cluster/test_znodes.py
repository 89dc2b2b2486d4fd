"""Paths and JSON are Apache Kafka's; the texts here are in the form that a Kafka 3.x broker writes."""

from __future__ import annotations

import json

import pytest

from barnabas.cluster.znodes.acls import AclChangeZnode, AclEntry, AclZnode
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo, BrokerSequenceZnode
from barnabas.cluster.znodes.consumer_offsets import ConsumerOffsetZnode
from barnabas.cluster.znodes.delegation_tokens import DelegationTokenZnode, TokenChangeZnode
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import (
    PERSISTENT_PATHS,
    ClusterIdZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionState,
    PartitionStateZnode,
    ProducerIdBlock,
    ProducerIdBlockZnode,
    ReplicaAssignment,
    TopicZnode,
    desanitize,
    sanitize,
)
from barnabas.cluster.znodes.notifications import (
    ConfigChangeZnode,
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
)
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.security.credentials.delegation_token import DelegationToken
from barnabas.security.identity.principal import KafkaPrincipal

TOPIC_ID = Uuid(bytes(range(16)))


def test_a_broker_registers_all_its_endpoints() -> None:
    broker = BrokerInfo(
        id=3,
        endpoints=(
            ListenerEndpoint("CLIENT", Endpoint("host1", 9092), "SASL_SSL"),
            ListenerEndpoint("REPLICATION", Endpoint("::1", 9093), "PLAINTEXT"),
        ),
        rack="dc1",
        features={"feature": (1, 3)},
        timestamp_ms=2233345666,
    )
    data = BrokerIdZnode.encode(broker)
    assert BrokerIdZnode.path(3) == "/brokers/ids/3"
    assert json.loads(data) == {
        "version": 5,
        "host": "::1",
        "port": 9093,
        "jmx_port": -1,
        "timestamp": "2233345666",
        "endpoints": ["CLIENT://host1:9092", "REPLICATION://[::1]:9093"],
        "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "REPLICATION": "PLAINTEXT"},
        "rack": "dc1",
        "features": {"feature": {"min_version": 1, "max_version": 3}},
    }
    assert BrokerIdZnode.decode(3, data, epoch=77) == broker._replace(epoch=77)


def test_a_broker_without_a_plaintext_endpoint_shows_none_to_old_clients() -> None:
    endpoint = ListenerEndpoint("SSL", Endpoint("h", 9093), "SSL")
    fields = json.loads(BrokerIdZnode.encode(BrokerInfo(1, (endpoint,))))
    assert (fields["host"], fields["port"]) == (None, -1)
    assert "rack" not in fields


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        (
            '{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}',
            (ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092)),),
        ),
        (
            (
                '{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1",'
                '"endpoints":["PLAINTEXT://host1:9092","SSL://host1:9093"]}'
            ),
            (
                ListenerEndpoint("PLAINTEXT", Endpoint("host1", 9092)),
                ListenerEndpoint("SSL", Endpoint("host1", 9093), "SSL"),
            ),
        ),
        (
            (
                '{"version":4,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","rack":"dc1",'
                '"listener_security_protocol_map":{"CLIENT":"SSL"},"endpoints":["CLIENT://host1:9092"]}'
            ),
            (ListenerEndpoint("CLIENT", Endpoint("host1", 9092), "SSL"),),
        ),
    ],
)
def test_older_registrations_are_read(text: str, endpoints: tuple[ListenerEndpoint, ...]) -> None:
    assert BrokerIdZnode.decode(0, text.encode(), 1).endpoints == endpoints


def test_a_topic_with_a_reassignment_goes_round() -> None:
    assignment = {
        0: ReplicaAssignment((1, 2, 3), adding_replicas=(3,), removing_replicas=(1,)),
        1: ReplicaAssignment((2, 1)),
    }
    data = TopicZnode.encode(TOPIC_ID, assignment)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [1, 2, 3], "1": [2, 1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
    }
    assert TopicZnode.decode("t", data) == (TOPIC_ID, assignment)
    assert TopicZnode.path("t") == "/brokers/topics/t"


def test_a_topic_of_an_old_kafka_has_no_id() -> None:
    info = TopicZnode.decode("t", b'{"version":1,"partitions":{"10":[0],"2":[1],"0":[1]}}')
    assert info.topic_id is None
    assert list(info.assignment) == [0, 2, 10]


def test_a_partition_state_goes_round() -> None:
    state = PartitionState(leader=1, leader_epoch=7, isr=(1, 2), controller_epoch=3, state_version=5)
    data = PartitionStateZnode.encode(state)
    assert data == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2]}'
    assert PartitionStateZnode.decode(data, 5) == state
    assert PartitionStateZnode.path("t", 4) == "/brokers/topics/t/partitions/4/state"
    recovering = state._replace(leader_recovery_state=1)
    assert json.loads(PartitionStateZnode.encode(recovering))["leader_recovery_state"] == 1
    assert PartitionStateZnode.decode(PartitionStateZnode.encode(recovering), 5) == recovering


def test_the_controller_and_its_epoch() -> None:
    assert ControllerZnode.encode(0, 1234) == b'{"version":1,"brokerid":0,"timestamp":"1234"}'
    kafka = b'{"version":2,"brokerid":4,"timestamp":"1","kraftControllerEpoch":-1}'
    assert ControllerZnode.decode(kafka) == 4
    assert ControllerEpochZnode.decode(ControllerEpochZnode.encode(12)) == 12


def test_the_cluster_id() -> None:
    assert ClusterIdZnode.encode("abc") == b'{"version":"1","id":"abc"}'
    assert ClusterIdZnode.decode(b'{"version":"1","id":"abc"}') == "abc"


def test_configuration_goes_round_and_may_be_missing() -> None:
    data = ConfigZnode.encode({"retention.ms": "1000"})
    assert data == b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert ConfigZnode.decode(data) == {"retention.ms": "1000"}
    assert ConfigZnode.decode(b"") == {}
    assert ConfigZnode.path("brokers", "<default>") == "/config/brokers/<default>"


def test_names_in_paths_are_percent_encoded() -> None:
    assert sanitize("user one/*~+é") == "user%20one%2F%2A%7E%2B%C3%A9"
    assert sanitize("a-b_c.d") == "a-b_c.d"
    assert sanitize("<default>") == "<default>"
    assert [desanitize(sanitize(name)) for name in (".", "..", "...")] == [".", "..", "..."]
    assert not {sanitize("."), sanitize("..")} & {".", ".."}
    assert desanitize(sanitize("CN=x, O=y/z")) == "CN=x, O=y/z"


def test_producer_id_blocks_are_written_as_text() -> None:
    data = ProducerIdBlockZnode.encode(ProducerIdBlock(1, 2000, 2999))
    assert data == b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    assert ProducerIdBlockZnode.decode(data) == ProducerIdBlock(1, 2000, 2999)


def test_notes_and_requests_go_round() -> None:
    partitions = {TopicPartition("b", 1), TopicPartition("a", 0)}
    expected = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":1}]}'
    assert IsrChangeZnode.encode(partitions) == expected
    assert IsrChangeZnode.decode(expected) == partitions
    assert PreferredReplicaElectionZnode.encode(partitions) == expected
    assert PreferredReplicaElectionZnode.decode(expected) == partitions
    assert LogDirEventZnode.encode(2) == b'{"version":1,"broker":2,"event":1}'
    assert LogDirEventZnode.decode(LogDirEventZnode.encode(2)) == 2
    assert ConfigChangeZnode.encode("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    assert ConfigChangeZnode.decode(ConfigChangeZnode.encode("topics/t")) == "topics/t"
    assert ConfigChangeZnode.decode(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    moves = {TopicPartition("t", 0): (1, 2)}
    expected = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    assert ReassignPartitionsZnode.encode(moves) == expected
    assert ReassignPartitionsZnode.decode(expected) == moves
    assert ConsumerOffsetZnode.path("g", "t", 0) == "/consumers/g/offsets/t/0"


def test_access_control_lists_go_round() -> None:
    entries = {AclEntry("User:alice", "Allow", "Read", "*"), AclEntry("User:bob", "Deny", "All", "h")}
    data = AclZnode.encode(entries)
    assert json.loads(data)["acls"][0] == {
        "principal": "User:alice",
        "permissionType": "Allow",
        "operation": "Read",
        "host": "*",
    }
    assert AclZnode.decode(data) == entries
    assert AclZnode.path("Topic", "t") == "/kafka-acl/Topic/t"
    assert AclZnode.path("Topic", "t", prefixed=True) == "/kafka-acl-extended/prefixed/Topic/t"
    assert AclChangeZnode.encode_literal("TransactionalId", "x:y") == b"TRANSACTIONAL_ID:x:y"
    assert AclChangeZnode.decode_literal(b"TRANSACTIONAL_ID:x:y") == ("TransactionalId", "x:y")
    prefixed = AclChangeZnode.encode_prefixed("Topic", "t")
    assert json.loads(prefixed)["resourceType"] == "TOPIC"
    assert AclChangeZnode.decode_prefixed(prefixed) == ("Topic", "t")


def test_delegation_tokens_go_round() -> None:
    alice, bob = KafkaPrincipal.user("alice"), KafkaPrincipal.user("bob one")
    token = DelegationToken("id", alice, bob, (bob,), issue_ms=1, max_ms=3, expiry_ms=2)
    data = DelegationTokenZnode.encode(token)
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Abob%20one",
        "renewers": ["User%3Abob%20one"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id",
    }
    assert DelegationTokenZnode.decode(data) == token
    assert DelegationTokenZnode.path("id") == "/delegation_token/tokens/id"
    assert TokenChangeZnode.CREATE_PATH == "/delegation_token/token_changes/token_change_"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b'{"version":1}'])
def test_nonsense_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        PartitionStateZnode.decode(data, 0)
    with pytest.raises(MalformedZnode):
        BrokerIdZnode.decode(1, data, 0)
    with pytest.raises(MalformedZnode):
        ControllerZnode.decode(data)


def test_every_path_is_apache_kafkas() -> None:
    assert BrokerIdZnode.path(1) == "/brokers/ids/1"
    assert BrokerSequenceZnode.PATH == "/brokers/seqid"
    assert TopicZnode.path("t") == "/brokers/topics/t"
    assert PartitionStateZnode.path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert (ControllerZnode.PATH, ControllerEpochZnode.PATH) == ("/controller", "/controller_epoch")
    assert ReassignPartitionsZnode.PATH == "/admin/reassign_partitions"
    assert DeleteTopicsZnode.path("t") == "/admin/delete_topics/t"
    assert PreferredReplicaElectionZnode.PATH == "/admin/preferred_replica_election"
    assert IsrChangeZnode.CREATE_PATH == "/isr_change_notification/isr_change_"
    assert LogDirEventZnode.CREATE_PATH == "/log_dir_event_notification/log_dir_event_"
    assert ConfigChangeZnode.CREATE_PATH == "/config/changes/config_change_"
    for entity_type in ("topics", "clients", "brokers", "users", "ips"):
        assert ConfigZnode.path(entity_type, "x") == f"/config/{entity_type}/x"
    assert ClusterIdZnode.PATH == "/cluster/id"
    assert AclZnode.path("Topic", "t") == "/kafka-acl/Topic/t"
    assert AclChangeZnode.LITERAL_CREATE_PATH == "/kafka-acl-changes/acl_changes_"


def test_the_paths_that_a_broker_makes() -> None:
    assert {"/brokers/ids", "/brokers/topics", "/config/topics", "/config/ips"} <= set(PERSISTENT_PATHS)
    assert {"/latest_producer_id_block", "/admin/delete_topics", "/brokers/seqid"} <= set(PERSISTENT_PATHS)
    assert {"/isr_change_notification", "/log_dir_event_notification"} <= set(PERSISTENT_PATHS)
    assert {"/config/changes", "/config/brokers", "/config/users", "/config/clients"} <= set(PERSISTENT_PATHS)
    assert {"/kafka-acl", "/kafka-acl-changes"} <= set(PERSISTENT_PATHS)
