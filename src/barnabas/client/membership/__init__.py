"""Membership in a consumer group, without I/O: the consumer protocol (KIP-848) and the classic one.

Both machines have the interface of `interface.Membership`: requests come out (`next_ask`), answers go in
(`answered`, `failed`), and the outcome is a queue of events: partitions assigned, revoked, lost.

- `interface`: events, options, and the protocol class.
- `consumer_protocol`: heartbeats that carry subscription and assignment; the broker assigns.
- `classic_protocol`: JoinGroup, SyncGroup, Heartbeat; the leader of the group assigns.
- `classic_messages`: the bytes that members of a classic group exchange.
- `assignors`, `sticky_assignor`: range, roundrobin, sticky, cooperative-sticky.
"""
