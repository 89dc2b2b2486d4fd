"""Committed offsets: membership checks, reading back, expiry."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    MessageTooLarge,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from barnabas.handlers.delete_groups import DELETE_GROUPS
from barnabas.handlers.describe_groups import DESCRIBE_GROUPS
from barnabas.handlers.offset_delete import OFFSET_DELETE
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.records.record import EndTransactionMarker
from tests.unit.coordinator.support import OWNER, Answer, Groups

DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS


def subscription(*topics: str) -> bytes:
    return b"\0\0" + ConsumerProtocolSubscription(topics=list(topics)).encode(0)


def stage(groups: Groups, producer_id: int, offset: int, **names: object) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=str(names.get("group", "g")),
        producer_id=producer_id,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(committed_offset=offset)]
            )
        ],
    )
    return staged(groups, request)


def staged(groups: Groups, request: TxnOffsetCommitRequest, version: int = 5) -> int:
    answer = Answer()
    groups.coordinator.run(
        request.group_id,
        lambda shard: shard.offset_requests.commit_in_transaction(request, version),
        lambda response: answer(response.topics[0].partitions[0].error_code),
        lambda error: answer(error.code),
        producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
    )
    return int(answer.value)


def end(groups: Groups, producer_id: int, *, commit: bool) -> None:
    answer = Answer()
    groups.runtime.complete_transaction(
        0, ProducerIdAndEpoch(producer_id, 0), EndTransactionMarker(commit, 0), answer, answer
    )
    assert answer.value is None


def test_a_simple_consumer_commits_and_fetches() -> None:
    groups = Groups()
    assert groups.fetch() == -1
    assert groups.commit(42, metadata="note") == 0
    assert groups.fetch() == 42
    assert groups.fetch(partition=1) == -1
    assert groups.state() == "Empty"
    (found,) = groups.fetch_later().value
    assert found.topics[0].partitions[0].metadata == "note"


def test_no_topics_means_all() -> None:
    groups = Groups()
    groups.commit(1, topic="a", partition=0)
    groups.commit(2, topic="a", partition=3)
    groups.commit(3, topic="b", partition=0)
    requests = [
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="other", topics=None),
    ]
    mine, other = groups.fetch_groups(requests).value
    assert {
        (topic.name, each.partition_index): each.committed_offset
        for topic in mine.topics
        for each in topic.partitions
    } == {("a", 0): 1, ("a", 3): 2, ("b", 0): 3}
    assert (other.group_id, other.topics, other.error_code) == ("other", [], 0)


def test_metadata_has_a_limit() -> None:
    groups = Groups(offset_metadata_max_bytes=4)
    assert groups.commit(1, metadata="12345") == OffsetMetadataTooLarge.code
    assert groups.commit(1, metadata="1234") == 0


@pytest.mark.parametrize(("version", "code"), [(8, IllegalGeneration.code), (9, GroupIdNotFound.code)])
def test_a_member_of_no_group_cannot_commit(version: int, code: int) -> None:
    assert Groups().commit(1, member="m", generation=3, version=version) == code


def test_a_commit_that_fails_has_changed_nothing() -> None:
    groups = Groups()
    groups.commit(1)
    groups.log.error = MessageTooLarge("too large")
    assert groups.commit(2) == InvalidCommitOffsetSize.code
    assert groups.fetch() == 1


def test_no_client_is_told_what_could_still_be_lost() -> None:
    groups = Groups()
    groups.commit(1)
    groups.log.is_replicated = False
    commit = groups.commit_later(2)
    fetch = groups.fetch_later()
    assert not commit.is_given
    assert not fetch.is_given
    groups.log.replicate()
    assert commit.value.topics[0].partitions[0].error_code == 0
    assert fetch.value[0].topics[0].partitions[0].committed_offset == 2


def test_a_commit_that_is_not_replicated_in_time_is_an_error() -> None:
    groups = Groups()
    groups.log.is_replicated = False
    commit = groups.commit_later(2)
    groups.log.time_out()
    assert commit.value.topics[0].partitions[0].error_code == CoordinatorNotAvailable.code


def test_commits_extend_the_session() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1, session_ms=10_000)
    for offset in range(3):
        groups.advance(6_000)
        assert groups.commit(offset, member=member, generation=generation) == 0
    assert groups.state() == "Stable"


# Expiry


def test_offsets_without_a_group_expire_after_their_commit() -> None:
    groups = Groups()
    groups.commit(1, partition=0)
    groups.advance(DAY_MS)
    groups.commit(2, partition=1)
    groups.advance(WEEK_MS - DAY_MS)
    assert (groups.fetch(partition=0), groups.fetch(partition=1)) == (-1, 2)
    groups.advance(DAY_MS)
    assert groups.fetch(partition=1) == -1
    assert groups.shard.groups == {}
    assert Groups(log=groups.log).shard.groups == {}


def test_offsets_of_a_group_expire_after_its_last_member() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1, session_ms=60_000)
    groups.commit(7, member=member, generation=generation)
    groups.leave(member)
    groups.advance(WEEK_MS - 1_000_000)
    assert groups.fetch() == 7
    groups.advance(2_000_000)
    assert groups.fetch() == -1
    assert groups.shard.groups == {}


def test_offsets_of_a_group_do_not_age_while_it_has_members() -> None:
    groups = Groups(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)
    protocols = (("range", subscription("t")),)
    (member,), generation = groups.stable_group(1, session_ms=600_000, protocols=protocols)
    groups.commit(7, member=member, generation=generation)
    groups.advance(300_000)
    groups.leave(member)
    groups.advance(59_000)
    assert groups.fetch() == 7
    groups.advance(2_000)
    assert groups.fetch() == -1


def test_offsets_of_topics_that_the_group_still_reads_do_not_expire() -> None:
    groups = Groups(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=1_000)
    protocols = (("range", subscription("kept")),)
    (member,), generation = groups.stable_group(1, session_ms=60_000, protocols=protocols)
    for topic in ("kept", "left"):
        groups.commit(1, member=member, generation=generation, topic=topic)
    groups.advance(30_000)
    assert (groups.fetch(topic="kept"), groups.fetch(topic="left")) == (1, -1)


def test_a_retention_without_end_never_expires() -> None:
    groups = Groups(offsets_retention_check_interval_ms=1_000)
    assert groups.commit(7, retention_ms=(1 << 63) - 1, version=4) == 0
    groups.advance(10_000)
    assert groups.fetch() == 7


def test_an_old_client_may_say_how_long_its_offset_is_kept() -> None:
    groups = Groups(offsets_retention_check_interval_ms=1_000)
    groups.commit(1, partition=0, retention_ms=5_000, version=4)
    assert Groups(log=groups.log).fetch() == 1
    groups.advance(5_000)
    assert groups.fetch() == -1


# Deleting


def delete(groups: Groups, topic: str = "t", group: str = "g") -> int:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition()])],
    )
    answer = groups.serve(OFFSET_DELETE, request, 0)
    if answer.value.error_code:
        return int(answer.value.error_code)
    return int(answer.value.topics[0].partitions[0].error_code)


def test_offsets_are_deleted_one_by_one() -> None:
    groups = Groups()
    groups.commit(1)
    groups.commit(2, topic="u")
    assert delete(groups) == 0
    assert (groups.fetch(), groups.fetch(topic="u")) == (-1, 2)
    assert delete(groups, group="nobody") == GroupIdNotFound.code


def test_offsets_of_topics_that_are_read_cannot_be_deleted() -> None:
    groups = Groups()
    groups.stable_group(1, protocols=(("range", subscription("t")),))
    assert delete(groups) == GroupSubscribedToTopic.code
    assert delete(groups, "other") == 0
    groups.stable_group(1, "connect", protocol_type="connect")
    assert delete(groups, group="connect") == NonEmptyGroup.code


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1)
    groups.commit(1, member=member, generation=generation)
    answer = groups.serve(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g", "nobody"]), 3)
    assert [each.error_code for each in answer.value.results] == [NonEmptyGroup.code, GroupIdNotFound.code]
    groups.leave(member)
    answer = groups.serve(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), 3)
    assert answer.value.results[0].error_code == 0
    for each in (groups, Groups(log=groups.log)):
        assert each.fetch() == -1
        assert each.shard.groups == {}


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    groups = Groups()
    groups.commit(1, group="a")
    groups.commit(2, group="b", partition=5)
    groups.commit(3, group="b", topic="u")
    groups.delete_topic("t")
    assert groups.fetch(group="a") == -1
    assert groups.fetch(group="b", partition=5) == -1
    assert groups.fetch(group="b", topic="u") == 3
    assert groups.shard.groups.keys() == {"b"}


# Transactions


def test_staged_offsets_count_once_they_are_committed() -> None:
    groups = Groups()
    groups.commit(1)
    assert stage(groups, 7, 10) == 0
    assert groups.fetch() == 1
    assert groups.fetch(require_stable=True) == -1000 * UnstableOffsetCommit.code
    end(groups, 7, commit=True)
    assert groups.fetch(require_stable=True) == 10
    assert Groups(log=groups.log).fetch() == 10


def test_aborted_offsets_never_count() -> None:
    groups = Groups()
    stage(groups, 7, 10)
    end(groups, 7, commit=False)
    assert groups.fetch(require_stable=True) == -1
    after = Groups(log=groups.log)
    assert after.fetch(require_stable=True) == -1
    assert after.shard.groups == groups.shard.groups == {}


def test_an_open_transaction_survives_its_coordinator() -> None:
    groups = Groups()
    stage(groups, 7, 10)
    after = Groups(log=groups.log)
    assert after.fetch(require_stable=True) == -1000 * UnstableOffsetCommit.code
    end(after, 7, commit=True)
    assert after.fetch(require_stable=True) == 10


def test_of_two_commits_the_later_one_wins() -> None:
    groups = Groups()
    stage(groups, 7, 10)
    groups.commit(20)
    end(groups, 7, commit=True)
    assert groups.fetch() == 20
    assert Groups(log=groups.log).fetch() == 20


def test_expiry_leaves_staged_offsets_alone() -> None:
    groups = Groups(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=1_000)
    groups.commit(1)
    stage(groups, 7, 10)
    groups.advance(10_000)
    assert groups.fetch() == 1
    end(groups, 7, commit=True)
    groups.advance(10_000)
    assert groups.fetch() == -1


def test_a_zombie_cannot_commit_in_a_transaction() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1)
    request = TxnOffsetCommitRequest(
        group_id="g",
        producer_id=7,
        generation_id_or_member_epoch=generation - 1,
        member_id=member,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition()])],
    )
    for member_id, code in ((member, IllegalGeneration.code), ("ghost", UnknownMemberId.code)):
        request.member_id = member_id
        assert staged(groups, request) == code


@pytest.mark.parametrize(("version", "code"), [(5, IllegalGeneration.code), (6, GroupIdNotFound.code)])
def test_a_transaction_hears_that_its_group_is_gone_if_it_knows_the_word(version: int, code: int) -> None:
    request = TxnOffsetCommitRequest(
        group_id="gone",
        producer_id=7,
        generation_id_or_member_epoch=3,
        member_id="m",
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition()])],
    )
    assert staged(Groups(), request, version) == code


def test_callers_are_shown_as_they_came() -> None:
    groups = Groups()
    groups.stable_group(1, client="the-client")
    answer = groups.serve(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)
    (member,) = answer.value.groups[0].members
    assert (member.client_id, member.client_host) == ("the-client", "/192.0.2.1")
    assert Caller.of("a", "b", 1, bool, OWNER).api_version == 1
