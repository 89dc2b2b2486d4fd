"""Compaction: a log keeps only the last value of every key.

A run reads the dirty end of a log into a map of keys and last offsets (`offset_map`). Then it rewrites the
log from its start without superseded records (`batch_filter`), one group of segments at a time. Each group is
swapped in as soon as it is on disk.

- `cleanable` selects the next log;
- `cleaning` is one run;
- `log_cleaner` starts the runs.
"""
