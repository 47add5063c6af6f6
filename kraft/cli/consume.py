"""`kraft consume`: writes a topic's records to standard output, from assigned partitions, through librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, require_text
from kraft.cli.shared.output import fail, note_client_errors
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

METADATA_TIMEOUT_S = 10.0
POLL_S = 0.2
BATCH_RECORDS = 5_000
MAX_OFFSET = 2**63 - 1
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="As --offset earliest.")] = False,
    offset: Annotated[str, typer.Option(help="N, earliest or latest.")] = "latest",
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", min=0, help="Stop after so many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="Stop at the end found at the start.")
    ] = False,
    format_: Annotated[
        str,
        typer.Option(
            "--format", help="%t topic %p partition %o offset %k key %v value %T time (ms) %h headers."
        ),
    ] = "%v",
) -> None:
    """Print records: the raw value and \\n, or what --format says. Exit 3 if no broker answers."""
    require_text(topic, "the topic's name")
    render = compile_format(format_)
    start = _parse_offset("earliest" if from_beginning else offset)
    consumer = _consumer(bootstrap_text(bootstrap_server))
    try:
        partitions = _assign(consumer, topic, partition, start)
        ends = _ends(consumer, topic, partitions) if exit_at_end else None
        _pump(consumer, render, max_records, ends)
    finally:
        consumer.close()


def _pump(
    consumer: Any, render: Callable[[Any], bytes], max_records: int | None, ends: dict[int, int] | None
) -> None:
    """Copies records to standard output until the maximum, or every end, is reached."""
    from confluent_kafka import KafkaError

    output, left = sys.stdout.buffer, max_records
    while left != 0 and (ends is None or ends):
        for message in consumer.consume(BATCH_RECORDS if left is None else min(left, BATCH_RECORDS), POLL_S):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    if ends is not None and message.offset() >= ends.get(message.partition(), 0):
                        ends.pop(message.partition(), None)
                    continue
                if error.retriable():
                    continue
                fail(f"{error.str()} (partition {message.partition()})")
            if ends is not None and message.offset() >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)  # written after the start: not ours to print
                continue
            output.write(render(message))
            if left is not None:
                left -= 1
            if ends is not None and message.offset() + 1 >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
        output.flush()


def compile_format(text: str) -> Callable[[Any], bytes]:
    """The function that renders a message; ends each with a newline unless the format does. Raises UserError."""
    require_text(text, "--format")
    parts: list[bytes | Callable[[Any], bytes]] = []
    position = 0
    while position < len(text):
        char, following = text[position], text[position + 1 : position + 2]
        if char == "\\" and following in _ESCAPES and following:
            parts.append(_ESCAPES[following].encode())
            position += 2
        elif char == "%":
            if following == "%":
                parts.append(b"%")
            elif following in _FIELDS and following:
                parts.append(_FIELDS[following])
            else:
                raise UserError(
                    f"--format does not know %{following}; it knows %{' %'.join(_FIELDS)} and %%", EXIT_USAGE
                )
            position += 2
        else:
            parts.append(char.encode())
            position += 1
    if not parts or parts[-1] != b"\n":
        parts.append(b"\n")
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def _headers(message: Any) -> bytes:
    return b",".join(key.encode() + b"=" + (value or b"") for key, value in message.headers() or [])


_FIELDS: dict[str, Callable[[Any], bytes]] = {
    "t": lambda m: m.topic().encode(),
    "p": lambda m: b"%d" % m.partition(),
    "o": lambda m: b"%d" % m.offset(),
    "k": lambda m: m.key() or b"",
    "v": lambda m: m.value() or b"",
    "T": lambda m: b"%d" % m.timestamp()[1],
    "h": _headers,
}


def _consumer(bootstrap_server: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "group.id": "kraft-consume",  # librdkafka wants one; partitions are assigned, no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": note_client_errors(),
            "log_level": 0,  # what librdkafka logs, it also reports
        },
        logger=None,
    )


def _parse_offset(text: str) -> int:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    named = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
    if text in named:
        return int(named[text])
    if text.isdecimal() and len(text) <= len(str(MAX_OFFSET)) and int(text) <= MAX_OFFSET:
        return int(text)
    raise UserError(f"--offset is a number, earliest or latest, not {text!r}", EXIT_USAGE)


def _assign(consumer: Any, topic: str, partition: int | None, start: int) -> list[int]:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        metadata = consumer.list_topics(topic, METADATA_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise UserError(
            f"no broker answered: {error.args[0].str()}; check --bootstrap-server", EXIT_UNDECIDED
        ) from error
    if metadata.error is not None:
        raise UserError(f"topic {topic}: {metadata.error.str()}")
    partitions = sorted(metadata.partitions)
    if partition is not None:
        if partition not in partitions:
            raise UserError(f"topic {topic} has partitions 0 to {len(partitions) - 1}, not {partition}")
        partitions = [partition]
    consumer.assign([TopicPartition(topic, p, start) for p in partitions])
    return partitions


def _ends(consumer: Any, topic: str, partitions: list[int]) -> dict[int, int]:
    """The end offsets now, of partitions that are not empty."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    unanswered = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    ends = {}
    for partition in partitions:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), METADATA_TIMEOUT_S)
        except KafkaException as error:
            is_lost = error.args[0].code() in unanswered
            raise UserError(
                f"partition {partition} of {topic}: {error.args[0].str()}",
                EXIT_UNDECIDED if is_lost else EXIT_FAILED,
            ) from error
        if high > low:
            ends[partition] = high
    return ends
