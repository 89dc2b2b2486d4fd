"""Consumer without I/O: positions, fetch requests, records on their way to the application.

- `subscription`: topics by name or pattern, or partitions assigned by hand.
- `positions`: the assigned partitions: position, needs (committed offset, reset, validation), pause.
- `reset_strategy`: `auto.offset.reset`.
- `fetch_session`: incremental fetch sessions (KIP-227), one for each broker.
- `fetch_plans`: which broker is asked for which partitions within the memory bound, and what answers mean.
- `fetched_data`, `decoding`: the batches of an answer, and their records.
- `handing_out`: records on their way to the application, and the positions that follow them.
"""
