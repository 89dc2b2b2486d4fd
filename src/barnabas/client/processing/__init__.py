"""Processing: records handled concurrently, in order per key, each acknowledged individually.

- `core`: without I/O. `offset_ledger` knows which records of a partition are done, and `finished_runs` is its
  form in the metadata of a commit. `lanes` orders the work, `retry_policy` decides about failures.
- `dead_letters`: records that failed for good, with Connect's headers.
- `processing`: the asyncio shell.
"""
