"""The follower's side of an incremental fetch session (KIP-227), which all partitions of one fetcher share.

It sends only partitions whose position has changed since the last request: what changed is kept in a set,
so that two thousand idle partitions cost an empty request.
"""

from __future__ import annotations

from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.protocol.messages import fetch
from barnabas.replication.follower.followed_partition import FollowedPartition
from barnabas.replication.leader.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch


class FollowerSession:
    """What the leader believes that we read."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = True
        self._wanted: dict[TopicPartition, FollowedPartition] = {}
        self._changed: dict[TopicPartition, FollowedPartition] = {}
        """Those of which the leader must hear."""
        self._known: dict[TopicPartition, Uuid] = {}
        """Partitions in the leader's session, by the topic id under which it knows them."""
        self._forgotten: list[tuple[TopicPartition, Uuid]] = []
        self._names: dict[Uuid, str] = {}
        self._without_id: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, followed: FollowedPartition) -> None:
        """Fetch it from now on, or from another position."""
        key, topic_id = followed.key, followed.partition.topic_id
        known_id = self._known.get(key)
        if known_id is not None and known_id != topic_id:
            self.leave(key)
        self._wanted[key] = self._changed[key] = followed
        if topic_id == ZERO_UUID:
            self._without_id.add(key)
        else:
            self._names[topic_id] = key.topic

    def leave(self, key: TopicPartition) -> None:
        """Fetch it no longer, or not now."""
        self._changed.pop(key, None)
        self._without_id.discard(key)
        if self._wanted.pop(key, None) is not None and key in self._known:
            self._forgotten.append((key, self._known.pop(key)))

    def reset(self) -> None:
        """Start over: the leader knows nothing of us."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._known.clear()
        self._forgotten.clear()
        self._changed = dict(self._wanted)

    def settle_naming(self) -> bool:
        """Whether topics go by their ids; one that has none makes all of them go by name."""
        uses_topic_ids = not self._without_id
        if uses_topic_ids != self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self.reset()
        return uses_topic_ids

    def fill(self, request: fetch.FetchRequest, partition_max_bytes: int) -> None:
        """Put into the request what the leader must hear."""
        request.session_id, request.session_epoch = self._id, self._epoch
        topics: dict[str, fetch.FetchTopic] = {}
        for key, followed in self._changed.items():
            topic = topics.get(key.topic)
            if topic is None:
                topic_id = followed.partition.topic_id
                topic = topics[key.topic] = fetch.FetchTopic(
                    topic=key.topic, topic_id=topic_id, partitions=[]
                )
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
        request.topics = list(topics.values())
        request.forgotten_topics_data = [
            fetch.ForgottenTopic(topic=key.topic, topic_id=topic_id, partitions=[key.partition])
            for key, topic_id in self._forgotten
            if self._known.get(key) != topic_id
        ]
        self._changed = {}
        self._forgotten = []

    def answered(self, session_id: int) -> None:
        """The leader has taken the request: the next one has the next epoch."""
        if session_id == NO_SESSION:
            self.reset()
        else:
            self._id = session_id
            self._epoch = next_epoch(self._epoch)

    def asked(self, topic: fetch.FetchableTopicResponse, partition: int) -> FollowedPartition | None:
        """Whom this part of an answer is for: None if our position, or what we follow, has changed
        since the question."""
        name = self._names.get(topic.topic_id, topic.topic) if self._uses_topic_ids else topic.topic
        key = TopicPartition(name, partition)
        return None if key in self._changed else self._wanted.get(key)
