"""The same requests to three brokers of Barnabas and to three of Apache Kafka.

Nodes are 1 to 3 on both sides, in racks of the same names, and partitions have the same replicas, so
that leaders and followers are the same too. What a cluster chooses for itself (which broker is the
controller, who coordinates a group) is replaced by a word. A request goes to the controller, as Metadata
names it, unless the case says `At(node, …)`.
"""
