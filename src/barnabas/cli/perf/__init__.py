"""Measurements of `barnabas perf`: latencies in bounded memory, progress lines, the report and its plot."""
