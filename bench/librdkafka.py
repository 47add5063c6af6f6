"""The part of librdkafka's C interface that the load needs: batches in, batches out, no Python per record.

The library is the one inside the confluent_kafka wheel, unmodified. Only its Python layer is left out: it costs
about as much CPU per record as everything else together, and would make the client the limit. An array of messages
is filled once and handed over again and again; consumed messages go to a function of the library itself.
`bench.workers` uses it.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterable, Mapping
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

_PRODUCER, _CONSUMER = 0, 1
_OFFSET_BEGINNING = -2
_CONF_OK = 0
_EVENT_DELIVERY_REPORTS = 1
_ERROR_BYTES = 512
METADATA_TIMEOUT_MS = 5_000
POLL_MS = 1
TURN_S = 0.001
"""How often the paced producer hands over the due records."""
REPORTS_AT_ONCE = 1_024
"""Delivery reports taken over at a time."""


class LibraryError(RuntimeError):
    """librdkafka refused or failed; the text is its own."""


class _Message(ctypes.Structure):
    """rd_kafka_message_t"""

    _fields_ = [
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    ]


class _TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t"""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    ]


class _TopicPartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t"""

    _fields_ = [("cnt", c_int), ("size", c_int), ("elems", POINTER(_TopicPartition))]


_DeliveryCallback = CFUNCTYPE(None, c_void_p, POINTER(_Message), c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "conf_new": (c_void_p, []),
    "conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "conf_set_dr_msg_cb": (None, [c_void_p, _DeliveryCallback]),
    "new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "destroy_flags": (None, [c_void_p, c_int]),
    "err2str": (c_char_p, [c_int]),
    "topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "topic_destroy": (None, [c_void_p]),
    "metadata": (c_int, [c_void_p, c_int, c_void_p, POINTER(c_void_p), c_int]),
    "metadata_destroy": (None, [c_void_p]),
    "produce_batch": (c_int, [c_void_p, c_int32, c_int, POINTER(_Message), c_int]),
    "poll": (c_int, [c_void_p, c_int]),
    "flush": (c_int, [c_void_p, c_int]),
    "outq_len": (c_int, [c_void_p]),
    "queue_new": (c_void_p, [c_void_p]),
    "queue_destroy": (None, [c_void_p]),
    "consume_start_queue": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "consume_stop": (c_int, [c_void_p, c_int32]),
    "consume_callback_queue": (c_int, [c_void_p, c_int, c_void_p, c_void_p]),
    "topic_partition_list_new": (POINTER(_TopicPartitionList), [c_int]),
    "topic_partition_list_add": (c_void_p, [POINTER(_TopicPartitionList), c_char_p, c_int32]),
    "topic_partition_list_destroy": (None, [POINTER(_TopicPartitionList)]),
    "position": (c_int, [c_void_p, POINTER(_TopicPartitionList)]),
    "last_error": (c_int, []),
    "conf_set_events": (None, [c_void_p, c_int]),
    "queue_get_main": (c_void_p, [c_void_p]),
    "queue_poll": (c_void_p, [c_void_p, c_int]),
    "event_message_array": (c_size_t, [c_void_p, POINTER(POINTER(_Message)), c_size_t]),
    "event_destroy": (None, [c_void_p]),
    "message_latency": (c_int64, [POINTER(_Message)]),
    "init_transactions": (c_void_p, [c_void_p, c_int]),
    "begin_transaction": (c_void_p, [c_void_p]),
    "commit_transaction": (c_void_p, [c_void_p, c_int]),
    "error_string": (c_char_p, [c_void_p]),
    "error_destroy": (None, [c_void_p]),
}


class _Library:
    """The functions of `_SIGNATURES` under their names without the prefix."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        # Looks at a message and changes nothing: what consumed messages are handed to.
        self.glance = ctypes.cast(library.rd_kafka_message_leader_epoch, c_void_p)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # all there are were set

    def text(self, code: int) -> str:
        return str(self.err2str(code).decode())


@cache
def library() -> _Library:
    """Loads librdkafka from the confluent_kafka wheel. Raises LibraryError where that has none."""
    import confluent_kafka  # its extension module, where a platform's wheel links the library into it
    from confluent_kafka import cimpl

    libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    candidates = [*sorted(libraries.glob("librdkafka-*.so*")), Path(cimpl.__file__)]
    for path in candidates:
        try:
            return _Library(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            continue
    raise LibraryError(f"no librdkafka was found in {libraries}; reinstall confluent-kafka from its wheel")


class _Client:
    """A handle with one topic, known to be served when the constructor returns."""

    def __init__(
        self, kind: int, settings: Mapping[str, str], topic: str, conf: Any, metadata_timeout_ms: int
    ) -> None:
        self._lib = library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        for name, value in settings.items():
            if self._lib.conf_set(conf, name.encode(), value.encode(), error, _ERROR_BYTES) != _CONF_OK:
                raise LibraryError(error.value.decode())
        self._handle = self._lib.new(kind, conf, error, _ERROR_BYTES)
        if not self._handle:
            raise LibraryError(error.value.decode())
        self._topic_name = topic.encode()
        self._topic = self._lib.topic_new(self._handle, self._topic_name, None)
        self._require_broker(metadata_timeout_ms)

    def _require_broker(self, timeout_ms: int) -> None:
        metadata = c_void_p()
        code = self._lib.metadata(self._handle, 0, self._topic, byref(metadata), timeout_ms)
        if code:
            _Client.close(self)
            raise LibraryError(f"no broker answered within {timeout_ms} ms: {self._lib.text(code)}")
        self._lib.metadata_destroy(metadata)

    def close(self) -> None:
        self._lib.topic_destroy(self._topic)
        self._lib.destroy_flags(self._handle, 0)


def _messages_of(value: ctypes.Array[ctypes.c_char], count: int) -> ctypes.Array[_Message]:
    """Messages that all point to this value, which has to outlive them."""
    messages = (_Message * count)()
    for message in messages:
        message.payload = ctypes.addressof(value)
        message.len = len(value)
    return messages


def _ms_until(deadline_s: float) -> int:
    return max(0, int((deadline_s - time.monotonic()) * 1000))


class BatchProducer(_Client):
    """Sends the same record again and again. Partitions take turns, a batch each."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        *,
        partitions: int,
        value: bytes,
        batch_records: int,
        metadata_timeout_ms: int = METADATA_TIMEOUT_MS,
    ) -> None:
        lib = library()
        conf = lib.conf_new()
        self.failures: list[str] = []
        self._callback = _DeliveryCallback(self._on_failure)  # must outlive the handle
        lib.conf_set_dr_msg_cb(conf, self._callback)
        super().__init__(
            _PRODUCER, {**settings, "delivery.report.only.error": "true"}, topic, conf, metadata_timeout_ms
        )
        self._partitions = partitions
        self._batch_records = batch_records
        self._turn, self._left_of_turn = 0, batch_records
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = _messages_of(self._value, batch_records)

    def _on_failure(self, _handle: int, message: Any, _opaque: int) -> None:
        self.failures.append(self._lib.text(message.contents.err))

    def send(self, records: int, deadline_s: float) -> None:
        """Sends `records` records and waits for their answers. Raises LibraryError past `deadline_s`
        (monotonic), or if one failed.
        """
        left = self._hand_over(records, deadline_s)
        self._lib.flush(self._handle, _ms_until(deadline_s))
        self._require_answers(left)

    def send_in_transactions(self, records: int, transaction_s: float, deadline_s: float) -> int:
        """As `send`, each `transaction_s` a transaction, which is committed before the next one begins. Returns
        their number. The producer has a `transactional.id`.
        """
        lib, handle = self._lib, self._handle
        self._check(lib.init_transactions(handle, _ms_until(deadline_s)))
        left, transactions = records, 0
        while left > 0:
            self._check(lib.begin_transaction(handle))
            left = self._hand_over(left, deadline_s, min(deadline_s, time.monotonic() + transaction_s))
            self._check(lib.commit_transaction(handle, _ms_until(deadline_s)))
            transactions += 1
            if time.monotonic() > deadline_s:
                break
        self._require_answers(left)
        return transactions

    def _hand_over(self, records: int, deadline_s: float, until_s: float = math.inf) -> int:
        """Hands records to the library until `until_s`; returns how many are left. Partitions take turns."""
        lib, handle, topic, messages = self._lib, self._handle, self._topic, self._messages
        left = records
        while left > 0:
            wanted = min(left, self._left_of_turn)
            taken = lib.produce_batch(topic, self._turn % self._partitions, 0, messages, wanted)
            left -= taken
            self._left_of_turn -= taken
            if taken < wanted:  # the queue is full
                lib.poll(handle, POLL_MS)
                if time.monotonic() > deadline_s:
                    break
            if self._left_of_turn == 0:
                self._turn, self._left_of_turn = self._turn + 1, self._batch_records
            if until_s != math.inf and time.monotonic() > until_s:
                break
        return left

    def _check(self, error: int | None) -> None:
        """Raises LibraryError for an rd_kafka_error_t."""
        if error:
            text = self._lib.error_string(error).decode()
            self._lib.error_destroy(error)
            raise LibraryError(text)

    def _require_answers(self, left: int) -> None:
        unanswered = left + self._lib.outq_len(self._handle)
        if unanswered or self.failures:
            raise LibraryError(
                f"{unanswered} records unanswered, {len(self.failures)} failed: {self.failures[:1]}"
            )


class PacedProducer(_Client):
    """Sends the same record at an even rate, every millisecond's records to the next partition.

    Latencies are the library's own: from the call that hands a record over to its delivery report.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        *,
        partitions: int,
        value: bytes,
        metadata_timeout_ms: int = METADATA_TIMEOUT_MS,
    ) -> None:
        conf = library().conf_new()
        library().conf_set_events(conf, _EVENT_DELIVERY_REPORTS)
        super().__init__(_PRODUCER, settings, topic, conf, metadata_timeout_ms)
        self._queue = self._lib.queue_get_main(self._handle)
        self._partitions = partitions
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = _messages_of(self._value, REPORTS_AT_ONCE)
        self._reports = (POINTER(_Message) * REPORTS_AT_ONCE)()
        self.latencies_us: list[int] = []

    def send(self, records: int, records_per_s: float, deadline_s: float) -> None:
        """Sends `records` records and waits for their answers. Raises LibraryError past `deadline_s`
        (monotonic), or if one failed.
        """
        started_s = next_turn_s = time.monotonic()
        sent = turn = 0
        while len(self.latencies_us) < records:
            now_s = time.monotonic()
            if now_s >= next_turn_s:  # reports come more often than that
                next_turn_s = max(next_turn_s + TURN_S, now_s)
                due = min(records, int((now_s - started_s) * records_per_s))
                wanted = min(due - sent, REPORTS_AT_ONCE)
                if wanted > 0:
                    sent += self._lib.produce_batch(
                        self._topic, turn % self._partitions, 0, self._messages, wanted
                    )
                    turn += 1
            self._take_reports()
            if now_s > deadline_s:
                raise LibraryError(f"{len(self.latencies_us)} of {records} records were acknowledged in time")

    def _take_reports(self) -> None:
        """Waits a millisecond for reports, and takes all of them."""
        lib, wait_ms = self._lib, POLL_MS
        while event := lib.queue_poll(self._queue, wait_ms):
            wait_ms = 0
            while taken := lib.event_message_array(event, self._reports, REPORTS_AT_ONCE):
                for report in self._reports[:taken]:
                    if report.contents.err:
                        raise LibraryError(f"a record failed: {lib.text(report.contents.err)}")
                    self.latencies_us.append(lib.message_latency(report))
            lib.event_destroy(event)

    def close(self) -> None:
        self._lib.queue_destroy(self._queue)
        super().close()


class BatchConsumer(_Client):
    """Reads partitions from their start, in the order in which they come."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        partitions: Iterable[int],
        *,
        metadata_timeout_ms: int = METADATA_TIMEOUT_MS,
    ) -> None:
        super().__init__(_CONSUMER, settings, topic, library().conf_new(), metadata_timeout_ms)
        self._partitions = list(partitions)
        self._queue = self._lib.queue_new(self._handle)

    def receive(self, records: int, deadline_s: float) -> int:
        """Reads at least `records` records. Raises LibraryError past `deadline_s` (monotonic)."""
        lib, queue = self._lib, self._queue
        for partition in self._partitions:
            if lib.consume_start_queue(self._topic, partition, _OFFSET_BEGINNING, queue):
                raise LibraryError(lib.text(lib.last_error()))
        seen = 0
        while seen < records:
            seen += max(0, lib.consume_callback_queue(queue, 100, lib.glance, None))
            if time.monotonic() > deadline_s:
                raise LibraryError(f"only {seen} of {records} records came in time")
        if (position := self._position()) < records:
            raise LibraryError(f"{seen} messages came, but only {position} were records")
        return seen

    def _position(self) -> int:
        """Sum of the offsets up to which the partitions were consumed."""
        wanted = self._lib.topic_partition_list_new(len(self._partitions))
        try:
            for partition in self._partitions:
                self._lib.topic_partition_list_add(wanted, self._topic_name, partition)
            if code := self._lib.position(self._handle, wanted):
                raise LibraryError(self._lib.text(code))
            offsets = [wanted.contents.elems[number].offset for number in range(len(self._partitions))]
        finally:
            self._lib.topic_partition_list_destroy(wanted)
        return sum(max(0, offset) for offset in offsets)

    def close(self) -> None:
        for partition in self._partitions:
            self._lib.consume_stop(self._topic, partition)
        self._lib.queue_destroy(self._queue)
        super().close()
