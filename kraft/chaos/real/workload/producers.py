"""Producers: plain and idempotent ones, and transactional ones, through librdkafka.

librdkafka makes batches itself; each record is a send of its own in the history. It does not tell whether a record
that failed may have been written, so only what certainly never left the client is a failure; all else is unknown.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from kraft.chaos.experiments.document import Workload
from kraft.chaos.history import Operation, OperationStatus
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.client import END_S, SETTINGS, Client, error_of
from kraft.chaos.real.workload.recorder import Recorder, made_value
from kraft.chaos.transaction_history import Transaction, TransactionEnd, Write

OUTSTANDING_MAX: Final = 2_000
"""Records without an outcome; with so many a producer waits."""
NEVER_SENT: Final = frozenset(
    (
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    )
)
PRODUCER: Final[dict[str, Any]] = {
    "linger.ms": 2,
    "request.timeout.ms": 12_000,
    "message.timeout.ms": 60_000,
}
RECORDS_A_TRANSACTION: Final = 5
ABORTED_SHARE: Final = 0.2
TRANSACTION_S: Final = 10.0
"""transaction.timeout.ms: so long the coordinator waits for one whose producer is gone."""
CALL_S: Final = 10.0
LIVES_MAX: Final = 20
"""Of a transactional producer: after an error that its client does not survive another one takes its id over."""
RETRY_S: Final = 0.2


class Outcomes:
    """Ends the operations of records as librdkafka tells what became of them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.outstanding = 0

    def expect(self, operation: Operation, write: Write | None = None) -> Any:
        """The callback for a record's delivery."""
        self.outstanding += 1

        def delivered(error: KafkaError | None, message: Any) -> None:
            self.outstanding -= 1
            offset = message.offset()
            if error is not None:
                status = OperationStatus.FAIL if error.code() in NEVER_SENT else OperationStatus.INFO
                self._recorder.sent(operation, status, error=error.name())
                return
            base = -1 if offset is None or offset < 0 else offset
            if write is not None:
                write.base_offset = base
            self._recorder.sent(operation, OperationStatus.OK, base)

        return delivered


class RecordProducer(Client):
    """Sends to the partitions of a topic in turn, `rate` records a second."""

    def __init__(
        self, name: str, brokers: Brokers, recorder: Recorder, spec: Workload, *, idempotent: bool
    ) -> None:
        super().__init__(name, brokers, recorder)
        self._spec = spec
        self._idempotent = idempotent
        self._outcomes = Outcomes(recorder)
        self._sent = 0
        self._lives = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._lives += 1
            self._live()

    def _live(self) -> None:
        """One producer, until it is to stop or has met an error that it does not survive."""
        fatal: list[str] = []
        producer = Producer(
            {
                **SETTINGS,
                **PRODUCER,
                **self.brokers.settings,
                "client.id": self.name,
                "acks": self._spec.acks,
                "enable.idempotence": self._idempotent,
                "error_cb": lambda error: fatal.append(error.str()) if error.fatal() else None,
            }
        )
        try:
            self._produce(producer, fatal)
            producer.flush(END_S)
        except KafkaException as error:  # librdkafka tells what ends it by any of its calls
            if not error_of(error).fatal():
                raise
        for end in (producer.purge, lambda: producer.flush(1.0)):
            with contextlib.suppress(KafkaException):  # it tells once more what has ended it
                end()

    def _produce(self, producer: Producer, fatal: list[str]) -> None:
        process = f"{self.name}.{self._lives}"
        pause_s, due_s = 1.0 / self._spec.rate, time.monotonic()
        while not self.stopping.is_set() and not fatal:
            producer.poll(max(0.0, min(due_s - time.monotonic(), 0.1)))
            if time.monotonic() >= due_s and self._outcomes.outstanding < OUTSTANDING_MAX:
                due_s = max(due_s + pause_s, time.monotonic() - 1.0)
                self._send(producer, process)

    def _send(self, producer: Producer, process: str) -> None:
        topic, spec = self._spec.topic, self._spec
        partition = self._sent % self.recorder.partitions[topic]
        head, value = made_value(process, partition, self._sent, spec.size_bytes)
        self._sent += 1
        operation = self.recorder.send(
            process, topic, partition, (head,), acks=spec.acks, idempotent=self._idempotent
        )
        try:
            producer.produce(
                topic, value=value, partition=partition, on_delivery=self._outcomes.expect(operation)
            )
        except (BufferError, KafkaException) as error:
            self._outcomes.outstanding -= 1
            self.recorder.sent(operation, OperationStatus.FAIL, error=str(error))


class TransactionalProducer(Client):
    """Transactions of a few records in several partitions; some it aborts of its own accord."""

    def __init__(
        self,
        name: str,
        brokers: Brokers,
        recorder: Recorder,
        spec: Workload,
        *,
        transactional_id: str,
        rng: random.Random,
    ) -> None:
        super().__init__(name, brokers, recorder)
        self._spec = spec
        self._transactional_id = transactional_id
        self._rng = rng
        self._outcomes = Outcomes(recorder)
        self._sent = 0
        self._lives = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._lives += 1
            producer = Producer(
                {
                    **SETTINGS,
                    **PRODUCER,
                    **self.brokers.settings,
                    "client.id": self.name,
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                    "message.timeout.ms": int(TRANSACTION_S * 1000),
                }
            )
            try:
                self._live(producer)
            except KafkaException:
                if self._lives == LIVES_MAX:
                    raise
            finally:
                with contextlib.suppress(KafkaException):  # it tells once more what has ended it
                    producer.purge()
                producer.flush(1.0)

    def _live(self, producer: Producer) -> None:
        """Raises KafkaException when this producer is of no more use."""
        while not self._done(lambda: producer.init_transactions(CALL_S)):
            if self.stopping.is_set():
                return
        pause_s, due_s = RECORDS_A_TRANSACTION / self._spec.rate, time.monotonic()
        while not self.stopping.is_set():
            if self.stopping.wait(max(0.0, due_s - time.monotonic())):
                return
            due_s = max(due_s + pause_s, time.monotonic() - 1.0)
            self._transaction(producer)

    def _transaction(self, producer: Producer) -> None:
        transaction = self.recorder.begin(self._transactional_id, f"{self.name}.{self._lives}")
        status, told = OperationStatus.INFO, ""
        try:
            producer.begin_transaction()
            for _ in range(RECORDS_A_TRANSACTION):
                self._send(producer, transaction)
            if self._rng.random() < ABORTED_SHARE:
                self._abort(producer, transaction)
            else:
                self._commit(producer, transaction)
            status = OperationStatus.OK
        except KafkaException as error:
            told = error_of(error).name()
            if not error_of(error).txn_requires_abort():
                raise
            self._abort(producer, transaction)
            status = OperationStatus.FAIL
        finally:
            self.recorder.ended(transaction, self._spec.topic, status, told)

    def _send(self, producer: Producer, transaction: Transaction) -> None:
        topic, process = self._spec.topic, transaction.process
        partition = self._rng.randrange(self.recorder.partitions[topic])
        head, value = made_value(process, partition, self._sent, self._spec.size_bytes)
        self._sent += 1
        write = self.recorder.write(transaction, topic, partition, (head,))
        operation = self.recorder.send(process, topic, partition, (head,), acks=-1, idempotent=True)
        producer.produce(
            topic, value=value, partition=partition, on_delivery=self._outcomes.expect(operation, write)
        )
        producer.poll(0)

    def _commit(self, producer: Producer, transaction: Transaction) -> None:
        """Asks until there is an outcome. Raises KafkaException."""
        producer.flush(TRANSACTION_S)
        transaction.commit_asked_s = self.recorder.clock()
        transaction.end = TransactionEnd.UNKNOWN
        self._ask(lambda: producer.commit_transaction(CALL_S))
        transaction.end = TransactionEnd.COMMITTED

    def _abort(self, producer: Producer, transaction: Transaction) -> None:
        was_asked = transaction.end is TransactionEnd.UNKNOWN
        self._ask(lambda: producer.abort_transaction(CALL_S))
        if not was_asked:
            transaction.end = TransactionEnd.ABORTED

    def _ask(self, call: Any) -> None:
        """Again, while it may help. Raises KafkaException."""
        end_s = time.monotonic() + END_S
        while not self._done(call):
            if time.monotonic() >= end_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no outcome", fatal=True))

    def _done(self, call: Any) -> bool:
        """Whether a call succeeded; False: it may be made again, after a short wait. Raises KafkaException."""
        try:
            call()
        except KafkaException as error:
            if not error_of(error).retriable():
                raise
            time.sleep(RETRY_S)
            return False
        return True
