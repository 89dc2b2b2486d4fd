"""One broker for all tests of the command line, ours or Apache Kafka (`--broker`)."""

from tests.support.fixtures import bootstrap, broker, new_topic, topic

__all__ = ["bootstrap", "broker", "new_topic", "topic"]
