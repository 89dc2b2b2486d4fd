"""Answers to the questions of the inspection socket: each a generator over the broker's parts."""
