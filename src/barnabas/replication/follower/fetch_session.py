"""Follower side of an incremental fetch session (KIP-227), shared by all partitions of one fetcher.

The session sends only partitions whose position has changed since the last request. A set holds the changed
ones, so two thousand idle partitions cost one empty request.
"""

from __future__ import annotations

from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.protocol.messages import fetch
from barnabas.replication.follower.followed_partition import FollowedPartition
from barnabas.replication.leader.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch


class FollowerSession:
    """Fetch session as the leader knows it."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = True
        self._wanted: dict[TopicPartition, FollowedPartition] = {}
        self._changed: dict[TopicPartition, FollowedPartition] = {}
        """Partitions that the next request must mention."""
        self._known: dict[TopicPartition, Uuid] = {}
        """Partitions in the leader's session, with the topic id that it has for them."""
        self._forgotten: list[tuple[TopicPartition, Uuid]] = []
        self._names: dict[Uuid, str] = {}
        self._without_id: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, followed: FollowedPartition) -> None:
        """Fetch the partition, from now on or from another position. It goes behind all others: a busy
        partition must not fill every response of a leader without sessions."""
        key, topic_id = followed.key, followed.partition.topic_id
        known_id = self._known.get(key)
        if known_id is not None and known_id != topic_id:
            self.leave(key)
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        self._wanted[key] = self._changed[key] = followed
        if topic_id == ZERO_UUID:
            self._without_id.add(key)
        else:
            self._names[topic_id] = key.topic

    def leave(self, key: TopicPartition) -> None:
        """Stop fetching the partition, for a while or for good."""
        self._changed.pop(key, None)
        self._without_id.discard(key)
        if self._wanted.pop(key, None) is not None and key in self._known:
            self._forgotten.append((key, self._known.pop(key)))

    def reset(self) -> None:
        """Start over with a leader that has no session for this fetcher."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._known.clear()
        self._forgotten.clear()
        self._changed = dict(self._wanted)

    def settle_naming(self) -> bool:
        """Whether requests use topic ids; one topic without an id makes the session use names."""
        uses_topic_ids = not self._without_id
        if uses_topic_ids != self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self.reset()
        return uses_topic_ids

    def fill(self, request: fetch.FetchRequest, partition_max_bytes: int) -> None:
        """Put the changed and the forgotten partitions into the request."""
        request.session_id, request.session_epoch = self._id, self._epoch
        topics: list[fetch.FetchTopic] = []
        topic: fetch.FetchTopic | None = None
        for key, followed in self._changed.items():
            if topic is None or topic.topic != key.topic:  # the order counts, so a topic may come twice
                topic_id = followed.partition.topic_id
                topic = fetch.FetchTopic(topic=key.topic, topic_id=topic_id, partitions=[])
                topics.append(topic)
            log = followed.partition.log
            topic.partitions.append(
                fetch.FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.leader_epochs.latest_epoch,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
            self._known[key] = topic.topic_id
        request.topics = topics
        request.forgotten_topics_data = [
            fetch.ForgottenTopic(topic=key.topic, topic_id=topic_id, partitions=[key.partition])
            for key, topic_id in self._forgotten
            if self._known.get(key) != topic_id
        ]
        self._changed = {}
        self._forgotten = []

    def answered(self, session_id: int) -> None:
        """Advance to the next epoch: the leader has accepted the request."""
        if session_id == NO_SESSION:
            self.reset()
        else:
            self._id = session_id
            self._epoch = next_epoch(self._epoch)

    def asked(self, topic: fetch.FetchableTopicResponse, partition: int) -> FollowedPartition | None:
        """Partition that a part of the response is for; None if its position, or the assignment, has changed
        since."""
        name = self._names.get(topic.topic_id, topic.topic) if self._uses_topic_ids else topic.topic
        key = TopicPartition(name, partition)
        return None if key in self._changed else self._wanted.get(key)
