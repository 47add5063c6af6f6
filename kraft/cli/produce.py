"""`kraft produce`: sends the lines of files, or of standard input, as records, through librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, require_text
from kraft.cli.shared.output import fail, note_client_errors, print_json
from kraft.user_error import EXIT_USAGE, UserError

FLUSH_TIMEOUT_S = 60.0
POLL_S = 0.1


class Acks(StrEnum):
    """Who must have a record before it counts as acknowledged."""

    all = "all"
    leader = "1"
    none = "0"


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of lines; none: standard input.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    acks: Annotated[
        Acks, typer.Option(help="all: the in-sync replicas; 1: the leader; 0: nobody.")
    ] = Acks.all,
    key_separator: Annotated[str, typer.Option(help="Splits each line into key and value.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="K=V, put on every record.")] = None,
    as_json: Json = False,
) -> None:
    """Send lines, split at \\n only; a last line without \\n counts. Exit 1 if any stayed unacknowledged."""
    require_text(topic, "the topic's name")
    separator = require_text(key_separator, "--key-separator").encode()
    headers = _parse_headers(header or [])
    servers = bootstrap_text(bootstrap_server)
    sources = _open_all(files or [])
    run = _Run(_producer(servers, acks), topic, separator, headers)
    try:
        for source in sources:
            for line in _lines(source):
                run.send(line.removesuffix(b"\n"))
    finally:
        run.finish()
    if as_json:
        print_json({"topic": topic, "sent": run.sent, "acknowledged": run.acknowledged, "failed": run.failed})
    if run.failed:
        fail(f"{run.failed} of {run.sent} lines stayed unacknowledged; first reason: {run.first_error}")


class _Run:
    """One run's counts; every record's delivery report passes through it."""

    def __init__(self, producer: Any, topic: str, separator: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._producer = producer
        self._topic = topic
        self._separator = separator
        self._headers = headers
        self.sent = self.acknowledged = 0
        self.first_error: str | None = None

    @property
    def failed(self) -> int:
        return self.sent - self.acknowledged

    def send(self, line: bytes) -> None:
        key: bytes | None = None
        if self._separator:
            head, found, tail = line.partition(self._separator)
            if found:
                key, line = head, tail
        while True:
            try:
                self._producer.produce(
                    self._topic, value=line, key=key, headers=self._headers, on_delivery=self._delivered
                )
            except BufferError:  # the client's queue is full: let deliveries make room
                self._producer.poll(POLL_S)
                continue
            except Exception as error:  # noqa: BLE001 - a client error concerns this line; the run reports it
                self.first_error = self.first_error or str(error)
            break
        self.sent += 1
        self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        elif self.first_error is None:
            self.first_error = error.str()

    def finish(self) -> None:
        if self._producer.flush(FLUSH_TIMEOUT_S) and self.first_error is None:
            self.first_error = f"no answer within {FLUSH_TIMEOUT_S:g} s"


def _producer(bootstrap_server: str, acks: Acks) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap_server,
            "acks": acks.value,
            "enable.idempotence": acks is Acks.all,
            "linger.ms": 5,
            "message.timeout.ms": int(FLUSH_TIMEOUT_S * 500),
            "error_cb": note_client_errors(),
            "log_level": 0,  # what librdkafka logs, it also reports
        },
        logger=None,
    )


def _parse_headers(pairs: list[str]) -> list[tuple[str, bytes]]:
    headers = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"--header takes K=V, not {pair!r}", EXIT_USAGE)
        require_text(pair, "--header")
        headers.append((key, value.encode()))
    return headers


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Raises UserError where a file cannot be read on; the lines before it are sent."""
    try:
        yield from source
    except OSError as error:
        raise UserError(f"cannot read {source.name}: {error.strerror}") from error


def _open_all(files: list[Path]) -> Iterator[BinaryIO]:
    """Opens every file before the first line is sent, so that a wrong name sends nothing."""
    if not files:
        return iter([sys.stdin.buffer])
    opened: list[BinaryIO] = []
    for file in files:
        try:
            opened.append(file.open("rb"))
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
    return iter(opened)
