"""Producer: from `send` to the acknowledgement.

- `core`: the machines without I/O. The accumulator collects records into batches, the sender decides requests
  and what their answers mean, the producer state numbers the batches.
- `producer`: the class that applications use.
- `sending`: the asyncio shell of the sender. It opens connections, posts requests and sets timers.
- `transactions`: the calls of a transactional producer.
- `delivery`: the future of one record.
"""
