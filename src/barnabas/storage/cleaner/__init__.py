"""Compaction: of every key only the last value is kept.

A run reads the dirty end of a log and notes the last offset of each key (`offset_map`), then
rewrites the log from its start, leaving out what has been superseded (`batch_filter`), group
of segments by group, each swapped in as soon as it is on disk. Which log is next is decided
in `cleanable`, a run is `cleaning`, and `log_cleaner` keeps the runs going.
"""
