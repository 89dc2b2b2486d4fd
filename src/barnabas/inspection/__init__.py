"""Private unix socket over which a broker answers tools of its own machine, in one pass.

The Kafka protocol answers question by question. It has no question for the lag of a group in time, the
segments of a log or the traffic of a topic. A broker knows all of it. The console and `barnabas top` ask
here. The answers are read-only; changes go through the Kafka protocol.

- `wire`: frames of JSON, and their limits.
- `answers`: each a generator over the broker's parts.
- `serving`: the table of questions, the socket, and the pace.
- `client`: the other end.

An answer covers this broker alone: the replicas that it leads, the groups that it coordinates. The asker
joins the answers of all brokers.
"""
