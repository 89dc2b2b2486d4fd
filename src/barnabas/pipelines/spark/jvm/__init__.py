"""Spark's JVM: session, home directory, class sharing and stalls."""
