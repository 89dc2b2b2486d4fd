"""Named limits on everything that a peer can make grow.

Limits that an operator may want to change are configuration keys instead.
"""

from typing import Final

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that wait for their answers; at this number the broker stops reading from it."""

RECEIVE_CHUNK_BYTES: Final = 256 * 1024
"""Bytes that one connection reads from its socket before other connections have their turn."""

WRITTEN_ELSEWHERE_BYTES_MIN: Final = 256 * 1024
"""Appends from this size on run in a thread. A smaller write takes less time than the hand-over to a
thread."""

WRITES_PER_DIRECTORY_MAX: Final = 2
"""Appends in threads at a time for one log directory: a disk that hangs must not take all threads."""

UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Memory of such appends for one log directory. Past this their connections wait."""

INDEX_INTERVAL_BYTES_MAX: Final = 1024 * 1024
"""Log between two index entries, whatever `index.interval.bytes` says. A search reads each header between
them."""

PRODUCERS_PER_TURN_MAX: Final = 500
"""Idempotent producers of a log that one turn of the loop renders for a snapshot, or checks for expiry. A
thread writes a larger snapshot, with the flush that follows."""

UNWRITTEN_SNAPSHOTS_MAX: Final = 8
"""Producer snapshots of one log that wait for a flush, each with a list of all its producers."""

MARKERS_PER_TURN_MAX: Final = 100
"""Partitions of a transaction that get their marker in one turn of the loop."""

MARKERS_UNWRITTEN_MAX: Final = 1_000
"""Markers of one request or transaction that wait for replication; the next ones follow when some are
replicated. A transaction of more partitions sends several WriteTxnMarkers to a leader."""

DISK_READERS_MAX: Final = 4
"""Threads that read data for fetch responses which is not in the page cache."""

OUTPUT_BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Answers queued for a client that does not read; past this the broker closes the connection."""

FRAME_ARRIVAL_MS_MAX: Final = 30_000
"""A request that has begun must make progress: slow-loris connections are closed after this."""

FRAME_ARRIVAL_BYTES_PER_MS_MIN: Final = 16
"""Once that time is over, a large request may continue as long as it keeps this average speed."""

OUTPUT_CONGESTED_BYTES: Final = 1024 * 1024
"""Answers queued in memory; past this the broker reads no further request of that connection."""

OUTPUT_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Answers queued for all connections together. Past this the broker closes connections that have not read
their answers within `OUTPUT_PATIENCE_MS`, the largest first."""

OUTPUT_PATIENCE_MS: Final = 1_000
"""Time that a client has for its answers while all of them together take too much memory."""

OUTPUT_STALLED_MS_MAX: Final = 300_000
"""The broker closes a connection that takes none of its queued bytes for this long."""

AUTHENTICATION_MS_MAX: Final = 30_000
"""The broker closes a connection that must authenticate and has not done so after this."""

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 128 * 1024
"""Size of a request before authentication: the largest message of any mechanism, and its header.
Unauthenticated clients can take this much memory per connection."""

HANDSHAKE_MS_MAX: Final = 10_000
"""A TLS handshake that is not complete by then fails."""

HANDSHAKES_MAX: Final = 1_024
"""TLS handshakes in progress; one more ends the oldest."""

HANDSHAKE_TURN_MS_MAX: Final = 5.0
"""Time of handshakes in one turn of the loop, except for the last step of the turn."""

HALF_CLOSED_MS_MAX: Final = 10_000
"""A client that has closed its sending side waits this long for its remaining answers."""

SHUTDOWN_BEGUN_MS_MAX: Final = 15_000
"""A broker that receives a stop signal begins its shutdown by then, even with a busy loop; or the process
ends."""

SHUTDOWN_MS_MAX: Final = 300_000
"""A shutdown that is not complete by then ends the process: a disk or the coordination store hangs."""

REQUESTS_PER_TURN_MAX: Final = 32
"""Requests of one connection that run before other connections have their turn."""

TURN_MS_MAX: Final = 5.0
"""Time of a long request in one turn of the loop; it continues in a later turn."""

ELEMENTS_PER_TURN_MAX: Final = 1_000
"""Array elements of a message that is decoded or encoded at once; a larger message is sliced."""

BYTES_PER_TURN_MAX: Final = 1024 * 1024
"""Bytes of a request, other than records, that are copied at once."""

PLAIN_REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
"""A request that carries no records and does not come from a controller. Its elements are bounded, so no
valid request is larger. A Produce obeys `socket.request.max.bytes`."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""A member's subscription or assignment. A log rejects it unless the operator allows such records."""

JOIN_METADATA_BYTES_MAX: Final = 4 * 1024 * 1024
"""Names and metadata of all protocols of a joining member. By default a log takes a quarter of it."""

SUBSCRIPTIONS_DECODED_BYTES_MAX: Final = 512 * 1024
"""Subscriptions of a classic group that the broker reads at once, to know the group's topics. A larger group
counts as a reader of every topic, and is not converted to the consumer protocol."""

ASSIGNMENT_ELEMENTS_PER_TURN_MAX: Final = 5_000
"""Subscriptions and partitions of a consumer group whose assignment is computed within the request. The
assignment of a larger group takes turns of its own, and its members receive it with their next heartbeat."""

GROUP_MEMORY_PER_CONNECTION_BYTES_MAX: Final = 16 * 1024 * 1024
"""Memory of group members, and of member ids given out, per connection."""

GROUP_MEMORY_PER_PRINCIPAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same per principal: some twenty thousand members with short subscriptions."""

GROUP_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""The same per broker. No principal has more of it than is left for the others."""

TRANSACTION_MEMORY_PER_CONNECTION_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory of transactional ids, and of the partitions of their transactions, per connection."""

TRANSACTION_MEMORY_PER_PRINCIPAL_BYTES_MAX: Final = 256 * 1024 * 1024
"""The same per principal: two hundred thousand ids. Unused ids are kept for `transactional.id.expiration.ms`,
seven days."""

TRANSACTION_MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The same per broker. No principal has more of it than is left for the others."""

REQUEST_ELEMENTS_MAX: Final = 100_000
"""Elements of all arrays of a request together, tagged fields included. Each becomes an object."""

DECISION_ELEMENTS_MAX: Final = 30_000
"""The same where a coordinator decides the request at once and writes one batch, which holds no more
anyway."""

NAMES_CHECKED_MAX: Final = 2_000_000
"""Authorizations that one request may check: twenty for each element that it may have."""

RECORDS_WALKED_MAX: Final = 10_000_000
"""Records that the broker reads one by one for a request, to find a timestamp or to convert an old format."""

INFLATED_REQUEST_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Bytes that the compressed batches of a request may inflate to, one after the other."""

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""An answer without its records: metadata of half a million partitions."""

ANSWER_ELEMENTS_MAX: Final = 150_000
"""Elements of an answer that come from state: settings of resources, offsets of groups, producers of
partitions. One name in the request can multiply them, and each is an object until it is sent."""

REQUEST_LOOP_MS_MAX: Final = 60_000.0
"""Loop time of a request in all its turns; then the answer is REQUEST_TIMED_OUT."""

ORDER_ELEMENTS_MAX: Final = 1_000_000
"""The same for a controller's requests: all partitions of a cluster, with their replicas."""

TAGGED_FIELDS_MAX: Final = 10_000
"""Tagged fields in one section of a message, known or not."""

STRING_BYTES_MAX: Final = 0x7FFF
"""The length field of a string in non-flexible versions holds this; Kafka keeps it in all versions."""

SEND_PER_TURN_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes that one connection writes to its socket before other connections have their turn."""

INFLATED_BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""A compressed batch may inflate to this; the limit stops a decompression bomb."""

FETCH_SESSION_BYTES: Final = 1024
FETCH_SESSION_PARTITION_BYTES: Final = 512
"""Memory of a fetch session, and of each partition in it."""

FETCH_SESSION_CONNECTION_BYTES_MAX: Final = 4 * 1024 * 1024
FETCH_SESSION_PRINCIPAL_BYTES_MAX: Final = 16 * 1024 * 1024
FETCH_SESSION_BROKER_BYTES_MAX: Final = 48 * 1024 * 1024
"""Fetch sessions of consumers: per connection (eight thousand partitions), per principal, per broker. A
consumer past a limit gets no session and names its partitions in every fetch."""

WALKED_RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""A record that is converted to an older message format."""

INSPECTED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A compressed batch may inflate to this where a topic's settings demand a check of its records. Past it the
answer is MESSAGE_TOO_LARGE, on which Java producers split the batch."""

INSPECTED_INLINE_BYTES_MAX: Final = 512 * 1024
INSPECTED_INLINE_RECORDS_MAX: Final = 1_000
"""A thread checks a batch of more inflated bytes or records."""

PROVEN_PRODUCERS_PER_CONNECTION_MAX: Final = 100
"""Transactional producers of one connection whose id needs no second check."""

LOG_LINES_PER_SECOND_MAX: Final = 10
"""Log lines per second about one kind of bad input; the rest are counted, not written."""

AUDIT_LINES_PER_SECOND_MAX: Final = 100
"""Lines of the audit log per second about denials, and as many about allowed operations; the rest are
counted."""

DELEGATION_TOKENS_MAX: Final = 2_000
"""Of all owners. Each costs milliseconds of key derivation when a broker starts."""

DELEGATION_TOKENS_PER_OWNER_MAX: Final = 500
"""One owner leaves room for the others."""

DELEGATION_TOKEN_RENEWERS_MAX: Final = 20
"""Of one token. Every broker has all of them in memory, and the owner names them."""

PRINCIPAL_NAME_BYTES_MAX: Final = 512
"""The name of a renewer or an owner of a token, as UTF-8: a distinguished name of a certificate fits."""

NAME_CHARS_REMEMBERED_MAX: Final = 256
"""Length to which caches and log lines keep names that a client chose. Topic names are shorter. Names of the
largest length that the protocol carries, in each entry of a cache, would take gigabytes."""

TELEMETRY_CLIENTS_PER_CONNECTION_MAX: Final = 16
"""Client instances of one connection. A client has one."""

TELEMETRY_SERIES_PER_CLIENT_MAX: Final = 2_000
"""Metrics that are kept for one client; the rest of its push is counted, not kept."""

TELEMETRY_FIELDS_PER_PUSH_MAX: Final = 200_000
"""Fields of a push that are read: 2,000 metrics with 16 attributes each. A hundred bytes inflate to half a
million fields."""

TELEMETRY_PER_CONNECTION_BYTES_MAX: Final = 2 * 1024 * 1024
TELEMETRY_PER_PRINCIPAL_BYTES_MAX: Final = 32 * 1024 * 1024
TELEMETRY_BYTES_MAX: Final = 128 * 1024 * 1024
"""Memory of what clients report of themselves: per connection, per principal, per broker."""
