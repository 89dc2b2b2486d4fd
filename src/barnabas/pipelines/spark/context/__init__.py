"""Context of a run, and connections to brokers, topics and databases."""
