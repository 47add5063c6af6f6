"""Sends records through librdkafka, and keeps what became of each line: acknowledged, failed or not sent."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kraft.cli.produce.audit import LineAudit
from kraft.cli.produce.lines import LineError, LineFormat, Source, lines
from kraft.cli.produce.stalls import Stalls
from kraft.cli.produce.transactions import Transactions
from kraft.cli.shared.output import console
from kraft.protocol.errors import ErrorCode
from kraft.user_error import UserError

POLL_S = 0.1
CLOSING_S = 5.0
"""How long a run that was interrupted waits for the answers under way."""
PURGE_S = 5.0
MARGIN_S = 10.0
"""So much later than librdkafka's own limit the run stops waiting for its reports."""


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP, counted: nothing is torn out of what is being counted. What the process was started
    to ignore (`nohup`) it ignores."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, self._count) for number in heeded}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _count(self, _number: int, _frame: object) -> None:
        self.count += 1


class StallWatch:
    """librdkafka's callbacks, which it makes inside `poll`: they feed `Stalls` and tell its news on standard error."""

    def __init__(self, stalls: Stalls) -> None:
        self.stalls = stalls

    def on_statistics(self, text: str) -> None:
        news = self.stalls.observe(json.loads(text), time.monotonic())
        if news is not None:
            console.print(news, style="yellow", markup=False, soft_wrap=True)

    def on_error(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the error before it says more
            self.stalls.client_error(error.str())

    def log(self, _level: int, _format: str, _facility: str, _client: str, text: str) -> None:
        """As a logger of the standard library is called."""
        self.stalls.logged(text, time.monotonic())


@dataclass(frozen=True)
class Target:
    """Where records go. `partition` None: as the partitioner says; `timestamp_ms` None: when they are sent."""

    topic: str
    partition: int | None = None
    timestamp_ms: int | None = None

    def arguments(self) -> dict[str, Any]:
        """For librdkafka's `produce`."""
        chosen = {"partition": self.partition, "timestamp": self.timestamp_ms}
        return {name: value for name, value in chosen.items() if value is not None}


class Run:
    """One run's counts; every record's delivery report passes through it. `why_stopped` is a clause for a person, where
    the run ended before its input did."""

    def __init__(
        self,
        producer: Any,
        target: Target,
        line_format: LineFormat,
        stalls: Stalls,
        interrupts: Interrupts,
        transactions: Transactions | None = None,
        audit: LineAudit | None = None,
    ) -> None:
        from confluent_kafka import KafkaError, KafkaException

        self._producer = producer
        self._topic = target.topic
        self._arguments = target.arguments()
        self._format = line_format
        self._stalls = stalls
        self._on_acknowledged = stalls.acknowledged
        self._interrupts = interrupts
        self.transactions = transactions
        self.audit = audit
        self._refusal = KafkaException
        self._unsent = KafkaError._PURGE_QUEUE
        self._unanswered = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_INFLIGHT)
        self._fatal = KafkaError._FATAL
        self._is_dead = False
        self._purged: Counter[int] = Counter()
        self.acknowledged = self.failed = self.not_sent = 0
        self.first_error: str | None = None
        self.why_stopped: str | None = None

    @property
    def lines(self) -> int:
        """All that were read."""
        return self.acknowledged + self.failed + self.not_sent

    def counts(self) -> str:
        """The one line at the end."""
        if self.transactions is not None:
            return self._counts_of(self.transactions)
        return f"{self.acknowledged:,} acknowledged, {self.failed:,} failed, {self.not_sent:,} not sent"

    def _counts_of(self, transactions: Transactions) -> str:
        aborted = self.acknowledged - transactions.committed - transactions.undecided
        undecided = f", {transactions.undecided:,} undecided" if transactions.undecided else ""
        return (
            f"{transactions.committed:,} committed, {max(aborted, 0):,} aborted{undecided}, {self.failed:,} failed,"
            f" {self.not_sent:,} not sent"
        )

    @property
    def lacking(self) -> int:
        """Lines that stayed unacknowledged; in transactions, that were not committed."""
        return self.lines - (self.acknowledged if self.transactions is None else self.transactions.committed)

    def send(self, source: Source, on_read: Callable[[int], None]) -> None:
        """Sends a source's lines. Sets `why_stopped` where not to its end. Raises UserError as `lines` does."""
        number = 0
        for line in lines(source, POLL_S, on_read):
            if line is not None:
                number += 1
                try:
                    self._send(line)
                except LineError as error:
                    self.not_sent += 1
                    self.why_stopped = f"line {number} of {source.name} {error}; nothing after it was sent"
            self._producer.poll(0)
            if self.audit is not None:
                self.audit.send_due()
            why = self._transaction_trouble()
            if why is not None:
                self.why_stopped = f"{why}; nothing after line {number} of {source.name} was sent"
            elif self._is_dead:
                self.why_stopped = (
                    f"librdkafka gave up; nothing after line {number} of {source.name} was sent"
                )
            elif self._interrupts.count and self.why_stopped is None:
                self.why_stopped = f"interrupted; nothing after line {number} of {source.name} was sent"
            if self.why_stopped is not None:
                return

    def _transaction_trouble(self) -> str | None:
        """Commits a transaction that is full. Returns why the run is to end, if a transaction is not committed."""
        transactions = self.transactions
        if transactions is None or self.why_stopped is not None:
            return None
        if self.failed or self._is_dead:
            self._abort(transactions)
            return "the transaction was aborted"
        return self._commit(transactions) if transactions.is_full else None

    def _commit(self, transactions: Transactions) -> str | None:
        why_not = transactions.commit()
        if self.audit is not None:
            self.audit.decided(committed=why_not is None)
        return why_not

    def _abort(self, transactions: Transactions) -> None:
        transactions.abort()
        if self.audit is not None:
            self.audit.decided(committed=False)

    def _send(self, line: bytes) -> None:
        record = self._format.record(line)
        try:
            if self.transactions is not None:
                self.transactions.add_line()
        except self._refusal as error:
            self._refused(error.args[0])
            return
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    on_delivery=self._delivered,
                    **self._arguments,
                )
            except BufferError:  # the client's queue is full: let deliveries make room
                self._producer.poll(POLL_S)
                if self._interrupts.count:
                    self.not_sent += 1
                    return
                continue
            except self._refusal as error:  # it concerns this line, or all that come; the run reports it
                self._refused(error.args[0])
            return

    def _refused(self, reason: Any) -> None:
        self.failed += 1
        self._is_dead = reason.code() == self._fatal
        self.first_error = self.first_error or reason.str()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
            self._on_acknowledged(message.partition())
            if self.audit is not None:
                self.audit.acknowledged(message.timestamp()[1])
            return
        self._stalls.failed(message.partition())
        if error.code() == self._unsent:
            self._purged[message.partition()] += 1
            return
        self.failed += 1
        self.first_error = self.first_error or self._worded(error, message.partition())

    def _worded(self, error: Any, partition: int) -> str:
        """librdkafka says of a record that nobody answered only that it gave up."""
        reason = self._stalls.reason_of(partition) if error.code() in self._unanswered else None
        return f"{error.str()} ({reason})" if reason else str(error.str())

    def finish(self, timeout_s: float) -> None:
        """Waits until librdkafka has reported every line, which it does within `timeout_s` (0: it tries without end).
        After an interruption it waits `CLOSING_S`, after two no longer; what is under way then has failed. An open
        transaction is committed, or aborted if the run stopped early."""
        if self.transactions is not None:
            if self.failed or self.why_stopped is not None or self._interrupts.count:
                self._abort(self.transactions)
            else:
                self.why_stopped = self._commit(self.transactions)
        started_s = time.monotonic()
        give_up_s = started_s + timeout_s + MARGIN_S if timeout_s else math.inf
        while self._flushed(POLL_S):
            now_s = time.monotonic()
            if self._interrupts.count:
                give_up_s = min(give_up_s, now_s + CLOSING_S if self._interrupts.count == 1 else now_s)
            if now_s >= give_up_s:
                self._producer.purge()
                self._flushed(PURGE_S)
                self._count_purged()
                return

    def _flushed(self, wait_s: float) -> int:
        """How many lines have no report yet after so long. A producer that is dead says so here too."""
        try:
            return int(self._producer.flush(wait_s))
        except self._refusal as error:
            self.first_error = self.first_error or error.args[0].str()
            self._producer.poll(wait_s)
            return len(self._producer)

    def _count_purged(self) -> None:
        """Tells lines that never left from those that wait to be sent again, and may have been written: librdkafka
        purges both out of its queue with one error. It sends the lines of a partition in their order, so its count of
        what it has sent says how many those are; lines that it sent twice make it too many, never too few."""
        if not self._purged:
            return
        seen, give_up_s = self._stalls.observations, time.monotonic() + PURGE_S
        while self._stalls.observations == seen and time.monotonic() < give_up_s:
            self._producer.poll(POLL_S)  # the next statistics are of all that was sent
        for partition, purged in self._purged.items():
            doubtful = self._stalls.sent_of_purged(partition, purged)
            self.failed += doubtful
            self.not_sent += purged - doubtful
            if doubtful:
                reason = self._stalls.reason_of(partition)
                self.first_error = self.first_error or f"no answer{f' ({reason})' if reason else ''}"


@contextlib.contextmanager
def shown(run: Run, sources: list[Source]) -> Iterator[Callable[[int], None]]:
    """A bar over the sources' bytes, or a count, on standard error; yields what takes the bytes read. Nothing where
    there is no terminal, or where lines are being typed into it."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Acknowledged(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{run.acknowledged:,} acknowledged")

    sizes = [source.size for source in sources]
    total = None if None in sizes else sum(filter(None, sizes))
    bar = (BarColumn(), DownloadColumn()) if total is not None else ()
    with Progress(
        TextColumn("sending"),
        *bar,
        Acknowledged(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or any(source.is_terminal for source in sources),
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda amount: progress.advance(task, amount)


def error_codes() -> dict[str, ErrorCode]:
    """Kafka's errors, by librdkafka's words for them."""
    from confluent_kafka import KafkaError

    return {KafkaError(int(code)).str(): code for code in ErrorCode if code > 0}


def check_partition(producer: Any, target: Target, timeout_s: float) -> None:
    """Raises UserError if the topic has no such partition: each line would fail of it."""
    from confluent_kafka import KafkaException

    if target.partition is None:
        return
    try:
        topic = producer.list_topics(target.topic, timeout_s).topics[target.topic]
    except KafkaException as error:
        raise UserError(f"no broker answered: {error.args[0].str()}; check --bootstrap-server") from error
    if topic.error is not None:
        raise UserError(f"topic {target.topic}: {topic.error.str()}")
    if target.partition not in topic.partitions:
        raise UserError(
            f"topic {target.topic} has partitions 0 to {len(topic.partitions) - 1}, not {target.partition}"
        )
