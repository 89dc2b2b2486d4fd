"""Runtime of both coordinators: decide, append and replay, for each partition of an internal topic."""
