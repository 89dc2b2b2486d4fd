"""The same requests to three brokers of Barnabas and to three of Apache Kafka.

Nodes are 1 to 3 on both sides, in racks of the same names. Partitions have the same replicas, so leaders and
followers are the same too. A word replaces each choice that a cluster makes for itself, such as its
controller and the coordinator of a group. A request goes to the controller, as Metadata names it, unless the
case says `At(node, …)`.
"""
