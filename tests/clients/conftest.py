"""Third-party clients against one broker for the whole session; `--broker kafka` checks the tests."""

from __future__ import annotations

from tests.support.fixtures import bootstrap, broker, new_topic, topic

__all__ = ["bootstrap", "broker", "new_topic", "topic"]
