"""Group and transaction coordinators: state that is replayed from the partitions of internal topics.

The package does no I/O of its own. Records go through the replicas (`runtime.log`). Other brokers and the
coordination store are asked through interfaces.
"""
