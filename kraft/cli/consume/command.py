"""`kraft consume`: writes records of topics to standard output, through librdkafka.

It reads the partitions that it assigns to itself or, with --group, those that its group gives it (membership.py).
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from kraft.cli.consume.membership import (
    STRATEGY,
    GroupProtocol,
    Member,
    Membership,
    is_incremental,
    membership,
)
from kraft.cli.consume.positions import (
    From,
    Offsets,
    Start,
    TopicPartition,
    Topics,
    ends_of,
    parse_offset,
    partitions_of,
    start_offsets,
)
from kraft.cli.consume.rendering import FORMAT_HELP, Render, compile_format, render_json
from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.escapes import unescape
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.librdkafka import Properties, client_of, parse_properties, security_properties
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.shared.output import console, fail, note_client_errors
from kraft.cli.shared.streams import ReaderGoneError
from kraft.cli.shared.times import parse_time_ms
from kraft.user_error import EXIT_USAGE, UserError

POLL_S = 0.2
BATCH_RECORDS = 5_000

OWNED = {
    "isolation.level": "--isolation-level sets it",
    "auto.offset.reset": "--offset says where to begin",
    "enable.partition.eof": "the command needs it for itself",
    "group.id": "--group sets it",
    "group.instance.id": "--instance-id sets it",
    "group.protocol": "--group-protocol sets it",
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store"),
        "--group commits what has been written, nothing else does",
    ),
}


class Isolation(StrEnum):
    """What is read of transactions that are open or were aborted: nothing, or all."""

    read_committed = "read_committed"
    read_uncommitted = "read_uncommitted"


def consume(
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Topics; ^REGEX stands for all whose names begin like that.", show_default=False),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    include: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="All topics whose whole name matches, as of now.", show_default=False
        ),
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="As --offset earliest.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            help="N; -N for the last N of each partition; earliest or latest.", show_default="latest"
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="From the first record of TIME or later: ISO 8601, or ms.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.", show_default=False)] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", min=0, help="Stop after so many records.", show_default=False)
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="Stop at the end found at the start.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group; where it has committed, it goes on.", show_default=False
        ),
    ] = None,
    group_protocol: Annotated[
        GroupProtocol | None, typer.Option(help="How members get partitions.", show_default="classic")
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Be this static member, whose partitions wait for it when it ends.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[str | None, typer.Option("--format", help=FORMAT_HELP, show_default="%v")] = None,
    null: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What --format shows for null.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a record and line.")] = False,
    isolation_level: Annotated[
        Isolation,
        typer.Option(
            metavar="LEVEL",
            help="read_committed: nothing of open and aborted transactions; read_uncommitted: all.",
        ),
    ] = Isolation.read_committed,
    properties: Properties = None,
) -> None:
    """Print records: the raw value and \\n, or what --format says. Exit 3 if no broker answers.

    With --group, offsets are committed once their records are written (at least once); --from-beginning, --offset and
    --from-time say where partitions without a committed offset begin; --exit-at-end waits for partitions.
    Ctrl-C ends it; that is exit 1 only where --max or --exit-at-end were not reached."""
    wanted = Topics(topics or [], include)
    start = _start(from_beginning, offset, from_time)
    render = _render(format_, null, as_json)
    joined = membership(group, group_protocol, instance_id)
    if joined is not None and partition is not None:
        raise UserError("--partition chooses a partition, --group is given some: leave one away", EXIT_USAGE)
    settings = {**parse_properties(properties or [], OWNED), "isolation.level": isolation_level.value}
    note = note_client_errors()
    own = {} if joined is None else joined.properties(start)
    where = {
        "bootstrap.servers": bootstrap_text(bootstrap_server),
        **security_properties(bootstrap_server),
    }
    consumer = _consumer({**where, **settings}, own, note)
    member = None if joined is None else Member(consumer, note)
    copy = Copy(render, max_records, member)
    try:
        with ends_like_ctrl_c():
            partitions = partitions_of(consumer, wanted, partition)
            ends = ends_of(consumer, partitions) if exit_at_end else None
            if member is None or joined is None:
                _assign(consumer, start_offsets(consumer, partitions, start))
            else:
                _join(member, joined, partitions, start, settings)
            copy.run(consumer, ends)
        if member is not None:
            member.leave()
    except KeyboardInterrupt:
        if member is not None:
            member.leave()
        if exit_at_end or max_records is not None:
            fail(f"interrupted after {copy.records:,} records")
    finally:
        consumer.close()  # a member commits what it has stored, and leaves


def _join(
    member: Member,
    joined: Membership,
    partitions: list[TopicPartition],
    start: Start,
    settings: dict[str, str],
) -> None:
    member.join(
        [partition.topic for partition in partitions],
        start,
        is_incremental=is_incremental(joined, settings.get(STRATEGY, "")),
    )


def _start(from_beginning: bool, offset: str | None, from_time: str | None) -> Start:
    """Raises UserError, wrong usage, where two options say it."""
    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise UserError("--from-beginning, --offset and --from-time say the same thing: give one", EXIT_USAGE)
    if from_time is not None:
        return Start(From.TIME, parse_time_ms(from_time, "--from-time"))
    return Start(From.EARLIEST) if from_beginning else parse_offset(offset or From.LATEST.value)


def _render(format_: str | None, null: str | None, as_json: bool) -> Render:
    if as_json:
        if format_ is not None or null is not None:
            raise UserError("--json has a shape of its own, without --format and --null", EXIT_USAGE)
        return render_json
    return compile_format(
        "%v" if format_ is None else format_, b"" if null is None else unescape(null, "--null")
    )


class Copy:
    """Copies records to standard output. `records` counts what was handed to it; a `member` of a group is told of what
    was written."""

    def __init__(self, render: Render, max_records: int | None, member: Member | None = None) -> None:
        self._render = render
        self._member = member
        self._last: dict[tuple[str, int], Any] = {}
        """The last message that was handed over, of each partition; a member's only, and until it is told."""
        self._max = max_records
        self._output = sys.stdout.buffer
        self._reader = _reader_of(self._output)
        self.records = 0

    def run(self, consumer: Any, ends: Offsets | None) -> None:
        """Until the maximum, or every one of `ends` (of a member: those that it has), is reached; then tells the count,
        on a terminal. Raises UserError for what cannot be read, and ReaderGoneError where nobody reads any more."""
        try:
            while (left := self._left()) and not self._is_at_end(ends):
                for message in consumer.consume(left, POLL_S):
                    self._take(message, ends)
                self._flush()
                if self._reader is not None and self._reader.poll(0):
                    raise ReaderGoneError
        except KeyboardInterrupt:
            self._flush()
            raise
        finally:
            if console.is_terminal:
                console.print(
                    f"{self.records:,} record{'s' * (self.records != 1)}", style="dim", markup=False
                )

    def _is_at_end(self, ends: Offsets | None) -> bool:
        if ends is None:
            return False
        return not ends if self._member is None else self._member.is_at_end(ends)

    def _flush(self) -> None:
        """Raises ReaderGoneError, and UserError, before a member is told."""
        self._output.flush()
        if self._member is not None:
            self._member.written(self._last.values())
            self._last.clear()

    def _left(self) -> int:
        return BATCH_RECORDS if self._max is None else min(self._max - self.records, BATCH_RECORDS)

    def _take(self, message: Any, ends: Offsets | None) -> None:
        error = message.error()
        if error is not None and not _is_end(error):
            self._note_or_fail(error, message)
            return
        if ends is None:
            if error is None:
                self._put(message)
            return
        partition = (message.topic(), message.partition())
        end = ends.get(partition, 0)
        is_ours = error is None and message.offset() < end  # else it was written after the start
        if is_ours:
            self._put(message)
        if message.offset() + is_ours >= end:
            ends.pop(partition, None)

    def _put(self, message: Any) -> None:
        self._output.write(self._render(message))
        self.records += 1
        if self._member is not None:
            self._last[message.topic(), message.partition()] = message

    def _note_or_fail(self, error: Any, message: Any) -> None:
        """Raises UserError for what does not pass by itself. (A member whose output was not read for too long is put
        out of its group, and joins again.)"""
        from confluent_kafka import KafkaError

        if error.retriable():
            return
        if self._member is not None and error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._member.note(error)
            return
        where = "" if message.topic() is None else f" (partition {message.partition()} of {message.topic()})"
        fail(error.str() + where)


def _is_end(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)


def _reader_of(output: Any) -> select.poll | None:
    """What tells that the other end of a pipe was closed, also while there is nothing to write."""
    try:
        number = output.fileno()
    except OSError:
        return None
    poll = select.poll()
    poll.register(number, 0)
    return poll


def _assign(consumer: Any, offsets: Offsets) -> None:
    from confluent_kafka import TopicPartition as Assigned

    consumer.assign([Assigned(*partition, offset) for partition, offset in offsets.items()])


def _consumer(wanted: dict[str, Any], own: dict[str, Any], note: Callable[[Any], None]) -> Any:
    """`own` are the properties of a member."""
    from confluent_kafka import Consumer

    always = {
        "group.id": "kraft-consume",  # librdkafka wants one; partitions are assigned, no group is joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "error_cb": note,
        "log_level": 0,  # what librdkafka logs, it also reports
    }
    return client_of(Consumer, {**wanted, **always, **own})
