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

INFLATED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A compressed batch may inflate to this; a bomb is stopped here."""

LOG_LINES_PER_SECOND_MAX = 10
"""Complaints about one kind of bad input; the rest are counted, not written."""
