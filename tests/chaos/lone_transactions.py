"""Transactions over partitions of one replica each: a marker has to wait while its broker is down.

A partition of several replicas has another leader within seconds. Here a transaction is decided while one of
its partitions has no leader. The coordinator that decided may be gone before that leader is back.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.chaos.history import History, Outcome, Transaction, Value
from tests.chaos.workload import TRANSACTION_TIMEOUT_MS, Worker
from tests.support.secured_cluster import Reach

COMMIT_TIMEOUT_S = 10
HOLD_S = 0.1
"""Between the last write and the end: most faults strike a transaction in which all is written."""


class LoneTransactions(Worker):
    """Each transaction writes one value to every partition."""

    def __init__(self, name: str, reach: Reach, topic: str, partitions: int, history: History) -> None:
        super().__init__(name)
        self._reach = reach
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._number = 0

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                producer = self._new_producer()
                while not self._stop.is_set():
                    self._write_one(producer)
            except KafkaException as error:
                self._meet(error)
                self._stop.wait(0.2)

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                **self._reach.properties,
                "client.id": self.name,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": 5_000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(COMMIT_TIMEOUT_S)
        return producer

    def _write_one(self, producer: Producer) -> None:
        transaction = Transaction(f"{self.name}/{self._number}/{time.monotonic_ns()}")
        producer.begin_transaction()
        for partition in range(self._partitions):
            self._number += 1
            value = Value(self.name, self._number, transaction.name)
            transaction.values.append(value)
            producer.produce(self._topic, value.encode(), partition=partition)
        self._history.transactions.append(transaction)
        try:
            producer.flush(COMMIT_TIMEOUT_S)
            time.sleep(HOLD_S)
            producer.commit_transaction(COMMIT_TIMEOUT_S)
            transaction.outcome = Outcome.ACKNOWLEDGED
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction(COMMIT_TIMEOUT_S)
                transaction.outcome = Outcome.REFUSED
                return
            raise
