"""A limit on everything that a peer can make grow, in one place and by name.

Limits that an operator may want to move are configuration keys; these are the ones nobody
should need to.
"""

REQUESTS_IN_FLIGHT_MAX = 64
"""Requests of one connection that may wait for their answers before reading stops."""

RECEIVE_CHUNK_BYTES = 256 * 1024
"""What one connection may take from its socket before others have their turn."""

OUTPUT_BUFFERED_BYTES_MAX = 128 * 1024 * 1024
"""Answers queued for a reader that does not read; past this the connection is closed."""

FRAME_ARRIVAL_MS_MAX = 30_000
"""A request that started must make progress: slow-loris connections are closed after this."""

FRAME_ARRIVAL_BYTES_PER_MS_MIN = 16
"""Once that time is over, a large request may go on for as long as it keeps this average speed."""

OUTPUT_CONGESTED_BYTES = 1024 * 1024
"""Answers queued in memory beyond this: no further request of that connection is read."""

OUTPUT_STALLED_MS_MAX = 300_000
"""A peer that takes none of the bytes waiting for it is closed after this."""

HALF_CLOSED_MS_MAX = 10_000
"""A peer that has finished sending may wait this long for the answers it is still owed."""

REQUESTS_PER_TURN_MAX = 32
"""Requests of one connection that are handled before other connections have their turn."""

SEND_PER_TURN_BYTES_MAX = 2 * 1024 * 1024
"""What one connection may put into its socket before others have their turn."""

INFLATED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A compressed batch may inflate to this; a bomb is stopped here."""

LOG_LINES_PER_SECOND_MAX = 10
"""Complaints about one kind of bad input; the rest are counted, not written."""
