"""`kraft consume`: writes records of topics to standard output, from assigned partitions, through librdkafka."""

from __future__ import annotations

import select
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from kraft.cli.consume.positions import (
    From,
    Offsets,
    Start,
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
from kraft.cli.shared.librdkafka import Properties, client_of, parse_properties
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap
from kraft.cli.shared.output import console, fail, note_client_errors
from kraft.cli.shared.times import parse_time_ms
from kraft.user_error import EXIT_USAGE, UserError

POLL_S = 0.2
BATCH_RECORDS = 5_000

OWNED = {
    "isolation.level": "--isolation-level sets it",
    "auto.offset.reset": "--offset says where to begin",
    "enable.partition.eof": "the command needs it for itself",
    **dict.fromkeys(
        ("group.id", "group.instance.id", "group.protocol", "enable.auto.commit"), "no group is joined"
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

    Ctrl-C ends it; that is exit 1 only where --max or --exit-at-end were not reached."""
    wanted = Topics(topics or [], include)
    start = _start(from_beginning, offset, from_time)
    render = _render(format_, null, as_json)
    settings = {**parse_properties(properties or [], OWNED), "isolation.level": isolation_level.value}
    consumer = _consumer({"bootstrap.servers": bootstrap_text(bootstrap_server), **settings})
    copy = Copy(render, max_records)
    try:
        with ends_like_ctrl_c():
            partitions = partitions_of(consumer, wanted, partition)
            _assign(consumer, start_offsets(consumer, partitions, start))
            copy.run(consumer, ends_of(consumer, partitions) if exit_at_end else None)
    except KeyboardInterrupt:
        if exit_at_end or max_records is not None:
            fail(f"interrupted after {copy.records:,} records")
    except BrokenPipeError:
        sys.stdout = None  # the reader of the output (`| head`) has enough: nothing is left to flush at exit
    finally:
        consumer.close()


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
    """Copies records to standard output. `records` counts what was handed to it."""

    def __init__(self, render: Render, max_records: int | None) -> None:
        self._render = render
        self._max = max_records
        self._output = sys.stdout.buffer
        self._reader = _reader_of(self._output)
        self.records = 0

    def run(self, consumer: Any, ends: Offsets | None) -> None:
        """Until the maximum, or every one of `ends`, is reached; then tells the count, on a terminal. Raises UserError
        for what cannot be read, and BrokenPipeError where nobody reads any more."""
        try:
            while (left := self._left()) and (ends is None or ends):
                for message in consumer.consume(left, POLL_S):
                    self._take(message, ends)
                self._output.flush()
                if self._reader is not None and self._reader.poll(0):
                    raise BrokenPipeError
        except KeyboardInterrupt:
            self._output.flush()
            raise
        finally:
            if console.is_terminal:
                console.print(
                    f"{self.records:,} record{'s' * (self.records != 1)}", style="dim", markup=False
                )

    def _left(self) -> int:
        return BATCH_RECORDS if self._max is None else min(self._max - self.records, BATCH_RECORDS)

    def _take(self, message: Any, ends: Offsets | None) -> None:
        error = message.error()
        if error is not None and not _is_end(error):
            if error.retriable():
                return
            fail(f"{error.str()} (partition {message.partition()} of {message.topic()})")
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


def _consumer(wanted: dict[str, Any]) -> Any:
    from confluent_kafka import Consumer

    own = {
        "group.id": "kraft-consume",  # librdkafka wants one; partitions are assigned, no group is joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "error_cb": note_client_errors(),
        "log_level": 0,  # what librdkafka logs, it also reports
    }
    return client_of(Consumer, {**wanted, **own})
