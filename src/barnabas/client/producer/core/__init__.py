"""Machines of the producer, without I/O and on the clock that they are given.

Records flow through them in this order:

1. `partitioners`: choose a partition.
2. `buffer_memory`: bounds the memory of all batches, with a fair queue of waiting senders.
3. `accumulator`: one deque of batches for each partition, filled by `send`.
4. `batch`: the records of one batch, its bytes, and its outcome.
5. `producer_state`: producer id, epoch and sequence numbers (`sequences` has those of one partition).
6. `sender`: which batches go to which broker now; what an answer or a lost connection means for them.
7. `transaction_state`: the states of a transactional producer; `transaction_requests` are its conversations.
"""
