"""Leader side of replication: fetch sessions, the ISR, and requests that wait for replicas."""
