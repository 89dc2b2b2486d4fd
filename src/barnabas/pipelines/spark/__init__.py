"""What runs a pipeline: its driver, and the sources, transforms and sinks as Spark's queries."""
