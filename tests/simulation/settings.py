"""Broker settings that a seed draws, so that no setting is the same in every run.

Each row is one idea: the settings that belong together, and how often a seed turns them on (swarm testing, as
with faults and clients). A row changes how a broker works and never what it promises: the judge stays the
same. Settings that change a promise (retention, unclean elections) belong to the topic of a part instead.
"""

from __future__ import annotations

import random
from typing import NamedTuple

FLUSH_EACH = "log.flush.interval.messages"

SMALL_MAP = {"log.cleaner.io.buffer.load.factor": "0.0002"}
"""Room for some twenty keys in the smallest buffer that is allowed."""


class Row(NamedTuple):
    share: float
    choices: tuple[dict[str, str], ...]


ROWS: dict[str, Row] = {
    "flush by number": Row(0.2, ({FLUSH_EACH: "1"}, {FLUSH_EACH: "1"}, {FLUSH_EACH: "4"})),
    "flush by time": Row(
        0.2,
        (
            {"log.flush.interval.ms": "300", "log.flush.scheduler.interval.ms": "200"},
            {"log.flush.interval.ms": "3000", "log.flush.scheduler.interval.ms": "1000"},
        ),
    ),
    "roll by time": Row(
        0.25,
        (
            {"log.roll.ms": "3000", "log.roll.jitter.ms": "1000"},
            {"log.roll.ms": "12000", "log.roll.jitter.ms": "11000"},
        ),
    ),
    "compression": Row(
        0.25,
        ({"compression.type": "gzip"}, {"compression.type": "uncompressed"}, {"compression.type": "lz4"}),
    ),
    "append time": Row(0.2, ({"log.message.timestamp.type": "LogAppendTime"},)),
    "index": Row(0.3, ({"log.index.interval.bytes": "0"}, {"log.index.interval.bytes": "300"})),
    "fetchers": Row(0.3, ({"num.replica.fetchers": "2"}, {"num.replica.fetchers": "3"})),
    "tiny fetches": Row(
        0.2,
        (
            {"replica.fetch.max.bytes": "300", "replica.fetch.response.max.bytes": "600"},
            {
                "replica.fetch.max.bytes": "1",
                "replica.fetch.response.max.bytes": "1",
                "max.incremental.fetch.session.cache.slots": "0",
            },
        ),
    ),
    "no sessions": Row(
        0.2,
        (
            {"max.incremental.fetch.session.cache.slots": "0"},
            {"max.incremental.fetch.session.cache.slots": "2"},
        ),
    ),
    "short waits": Row(0.2, ({"replica.fetch.wait.max.ms": "100"},)),
    "internal topics roll": Row(
        0.4,
        (
            {
                "offsets.topic.segment.bytes": "2500",
                "transaction.state.log.segment.bytes": "2500",
                "log.cleaner.min.cleanable.ratio": "0.01",
            },
        ),
    ),
    "short delete retention": Row(0.4, ({"log.cleaner.delete.retention.ms": "4000"},)),
    "small key map": Row(
        0.5,
        (SMALL_MAP, {"log.cleaner.io.buffer.load.factor": "0.0004"}),
    ),
    "slow cleaner": Row(0.3, ({"log.cleaner.backoff.ms": "15000"},)),
    "two cleaners": Row(0.3, ({"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": str(3 << 20)},)),
    "two recovery threads": Row(0.3, ({"num.recovery.threads.per.data.dir": "2"},)),
    "racks": Row(
        0.3,
        (
            {
                "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
                "broker.rack": "rack-{odd}",
            },
        ),
    ),
}
RACKS = ROWS["racks"].choices[0]
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOKEN_PORT, TOKEN_USER, TOKEN_PASSWORD = 9093, "alice", "alice-secret"
"""A second listener, whose clients log in: tokens are given to nobody else."""
TRIAL_SETTINGS: dict[str, dict[str, str]] = {
    "backlog": SMALL_MAP,
    "graves": SMALL_MAP,
    "nearby": RACKS,
    "users": AUTHORIZER,
    "notices": AUTHORIZER,
    "tokens": {
        "listeners": f"PLAINTEXT://10.0.0.{{number}}:9092,SASL_PLAINTEXT://10.0.0.{{number}}:{TOKEN_PORT}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_{TOKEN_USER}="{TOKEN_PASSWORD}";'
        ),
        "delegation.token.secret.key": "secret of all brokers",
    },
    "relocation": {"log.cleaner.backoff.ms": "1000", "log.cleaner.io.buffer.load.factor": "0.9"},
    "held": {"replica.fetch.max.bytes": "1500", "replica.fetch.response.max.bytes": "1500"},
    "crowd": {
        "replica.fetch.max.bytes": "400",
        "replica.fetch.response.max.bytes": "400",
        "max.incremental.fetch.session.cache.slots": "0",
    },
}
"""Settings of brokers for a trial."""
SINGLE = {
    "zookeeper.connect": "",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""A broker without ZooKeeper and without others."""


def draw_settings(seed: int) -> dict[str, str]:
    chance = random.Random(f"{seed} settings")
    found: dict[str, str] = {}
    for row in ROWS.values():
        is_on, choice = chance.random() < row.share, chance.choice(row.choices)
        if is_on:
            found.update(choice)
    return found


def settings_of(number: int, settings: dict[str, str]) -> dict[str, str]:
    """For one broker: racks and addresses differ."""
    return {
        key: value.replace("{odd}", str(number % 2)).replace("{number}", str(number))
        for key, value in settings.items()
    }
