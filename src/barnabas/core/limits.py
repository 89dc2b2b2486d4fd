"""A limit on everything that a peer can make grow, in one place and by name.

Limits that an operator may want to move are configuration keys; these are the ones nobody
should need to.
"""

from typing import Final

REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that may wait for their answers before reading stops."""

RECEIVE_CHUNK_BYTES: Final = 256 * 1024
"""What one connection may take from its socket before others have their turn."""

WRITTEN_ELSEWHERE_BYTES_MIN: Final = 256 * 1024
"""From so many bytes of records on a thread writes them: to write fewer takes less than to hand them over."""

WRITES_PER_DIRECTORY_MAX: Final = 2
"""Such writes at a time to one log directory: a disk that hangs must not take all threads."""

UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of such appends to one log directory, in memory: past this their connections wait."""

DISK_READERS_MAX: Final = 4
"""Threads that read for answers what is not in the page cache."""

OUTPUT_BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Answers queued for a reader that does not read; past this the connection is closed."""

FRAME_ARRIVAL_MS_MAX: Final = 30_000
"""A request that started must make progress: slow-loris connections are closed after this."""

FRAME_ARRIVAL_BYTES_PER_MS_MIN: Final = 16
"""Once that time is over, a large request may go on for as long as it keeps this average speed."""

OUTPUT_CONGESTED_BYTES: Final = 1024 * 1024
"""Answers queued in memory beyond this: no further request of that connection is read."""

OUTPUT_STALLED_MS_MAX: Final = 300_000
"""A peer that takes none of the bytes waiting for it is closed after this."""

AUTHENTICATION_MS_MAX: Final = 30_000
"""A peer that has to authenticate and has not done so is closed after this."""

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 128 * 1024
"""A request of a peer that has not authenticated: the largest message of any mechanism, and its header. This
is the memory that strangers can take, for each of their connections."""

HANDSHAKE_MS_MAX: Final = 10_000
"""A TLS handshake that is not over by then is given up."""

HANDSHAKES_MAX: Final = 1_024
"""TLS handshakes under way; one more ends the one that began first."""

HANDSHAKE_TURN_MS_MAX: Final = 5.0
"""What handshakes may take of one turn of the loop, but for the last step of it."""

HALF_CLOSED_MS_MAX: Final = 10_000
"""A peer that has finished sending may wait this long for the answers it is still owed."""

REQUESTS_PER_TURN_MAX: Final = 32
"""Requests of one connection that are handled before other connections have their turn."""

TURN_MS_MAX: Final = 5.0
"""What a request with much to do may take of one turn of the loop; it goes on in a later one."""

ELEMENTS_PER_TURN_MAX: Final = 1_000
"""Elements of arrays in a message that is read or written in one go; beyond, it is done in slices."""

BYTES_PER_TURN_MAX: Final = 1024 * 1024
"""Bytes of a request, other than records, that are copied in one go."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""A member's subscription or assignment. No log would take it unless its operator allowed such records."""

REQUEST_ELEMENTS_MAX: Final = 100_000
"""Elements of all arrays of a request together, tagged fields included. Each becomes an object."""

DECISION_ELEMENTS_MAX: Final = 30_000
"""The same for what a coordinator decides in one go and writes in one batch, which holds no more anyway."""

ORDER_ELEMENTS_MAX: Final = 1_000_000
"""The same for what a controller tells brokers: all partitions of a cluster, with their replicas."""

TAGGED_FIELDS_MAX: Final = 10_000
"""Tagged fields in one section of a message, known or not."""

STRING_BYTES_MAX: Final = 0x7FFF
"""What the length of a string in versions that are not flexible can say; Kafka keeps it in all."""

SEND_PER_TURN_BYTES_MAX: Final = 2 * 1024 * 1024
"""What one connection may put into its socket before others have their turn."""

INFLATED_BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""A compressed batch may inflate to this; a bomb is stopped here."""

LOG_LINES_PER_SECOND_MAX: Final = 10
"""Complaints about one kind of bad input; the rest are counted, not written."""

AUDIT_LINES_PER_SECOND_MAX: Final = 100
"""Lines of the audit log about what was denied, and as many about what was allowed; the rest are counted."""

DELEGATION_TOKENS_MAX: Final = 2_000
"""Of all owners. Each costs milliseconds of key derivation when a broker starts."""

DELEGATION_TOKENS_PER_OWNER_MAX: Final = 500
"""So that one owner leaves room for the others."""

DELEGATION_TOKEN_RENEWERS_MAX: Final = 20
"""Of one token. Every broker has all of them in memory, and its owner is who names them."""

PRINCIPAL_NAME_BYTES_MAX: Final = 512
"""The name of a renewer or an owner of a token, as UTF-8: a distinguished name of a certificate fits."""

NAME_CHARS_REMEMBERED_MAX: Final = 256
"""Names that a client chose are kept in caches and log lines up to this length. Those of topics end before;
the largest that the protocol carries, in each place of a cache, would be gigabytes."""
