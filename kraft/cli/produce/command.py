"""`kraft produce`: sends the lines of files, or of standard input, as records, through librdkafka."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kraft.auditing.messages import DEFAULT_AUDIT_TOPIC, DEFAULT_WINDOW_MS
from kraft.cli.produce.audit import AuditOptions, LineAudit
from kraft.cli.produce.lines import LineFormat, open_sources
from kraft.cli.produce.sending import (
    MARGIN_S,
    Interrupts,
    Run,
    StallWatch,
    Target,
    check_partition,
    error_codes,
    shown,
)
from kraft.cli.produce.stalls import Stalls
from kraft.cli.produce.transactions import Transactions
from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.escapes import unescape
from kraft.cli.shared.librdkafka import Properties, client_of, parse_properties, security_properties
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, require_text
from kraft.cli.shared.output import console, fail, print_json
from kraft.cli.shared.times import parse_duration_ms, parse_time_ms
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

MESSAGE_TIMEOUT_MS = 30_000
METADATA_TIMEOUT_S = 10.0
STATISTICS_MS = 1_000

OWNED = {
    "acks": "--acks sets it",
    "request.required.acks": "--acks sets it",
    "compression.type": "--compression sets it",
    "compression.codec": "--compression sets it",
    "transactional.id": "--transactional-id sets it",
    "delivery.report.only.error": "acknowledgements are counted",
    "on_delivery": "acknowledgements are counted",
}


class Acks(StrEnum):
    """Who must have a record before it counts as acknowledged."""

    all = "all"
    leader = "1"
    none = "0"


class Compression(StrEnum):
    """Kafka's codecs."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of lines; none: standard input.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    acks: Annotated[
        Acks, typer.Option(help="all: the in-sync replicas; 1: the leader; 0: nobody.")
    ] = Acks.all,
    key_separator: Annotated[
        str, typer.Option(metavar="S", help="Splits each line into key and value; \\t is a tab.")
    ] = "",
    key_optional: Annotated[
        bool, typer.Option("--key-optional", help="A line without the separator has no key; else an error.")
    ] = False,
    headers_separator: Annotated[
        str, typer.Option(metavar="S", help="Splits headers, K=V[,K=V…], off the front of each line.")
    ] = "",
    header: Annotated[list[str] | None, typer.Option(help="K=V, put on every record.")] = None,
    null: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A key or value that is TEXT is null.", show_default=False),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Send all to this one; else the key's, as Java's client has it.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of all records: ISO 8601, or ms.", show_default=False)
    ] = None,
    compression: Annotated[
        Compression, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = Compression.none,
    transactional_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Send in transactions, under this id.", show_default=False),
    ] = None,
    transaction_records: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Lines of one transaction; else all are.", show_default=False),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Count acknowledged lines by window, for `kraft audit`.")
    ] = False,
    audit_topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where counts are sent.", show_default=DEFAULT_AUDIT_TOPIC),
    ] = None,
    audit_window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a window is.", show_default="PT1M")
    ] = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Send lines, split at \\n only; a last line without \\n counts. Exit 1 if any stayed unacknowledged.

    With --transactional-id a transaction that fails or is interrupted is aborted, which ends the run: what is committed
    is a beginning of the input. Exit 1 if any line was not committed, 3 if that cannot be told.

    With --audit, exit 1 also if lines stayed uncounted. A run that is killed leaves those of its last window uncounted.
    """
    line_format = LineFormat(
        unescape(key_separator, "--key-separator"),
        key_optional,
        unescape(headers_separator, "--headers-separator"),
        None if null is None else unescape(null, "--null"),
        tuple(_parse_headers(header or [])),
    )
    if key_optional and not key_separator:
        raise UserError("--key-optional goes with --key-separator", EXIT_USAGE)
    if transaction_records is not None and transactional_id is None:
        raise UserError("--transaction-records goes with --transactional-id", EXIT_USAGE)
    if transactional_id is not None and acks is not Acks.all:
        raise UserError("--transactional-id goes with --acks all", EXIT_USAGE)
    target = Target(
        require_text(topic, "the topic's name"),
        partition,
        None if timestamp is None else parse_time_ms(timestamp, "--timestamp"),
    )
    wanted = _settings(bootstrap_server, acks, compression, transactional_id, properties or [])
    counts = _audit_options(audit, audit_topic, audit_window)
    run = _run(wanted, target, line_format, files or [], transaction_records, counts)
    _tell(run, topic, as_json=as_json)


def _settings(
    bootstrap: str, acks: Acks, compression: Compression, transactional_id: str | None, properties: list[str]
) -> dict[str, Any]:
    """Of librdkafka's producer. Raises UserError, wrong usage."""
    settings = {
        "bootstrap.servers": bootstrap_text(bootstrap),
        **security_properties(bootstrap),
        "acks": acks.value,
        "enable.idempotence": acks is Acks.all,
        "compression.type": compression.value,
        "linger.ms": 5,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "partitioner": "murmur2_random",
        **parse_properties(properties, OWNED),
    }
    if transactional_id is not None:
        settings["transactional.id"] = require_text(transactional_id, "the transactional id")
    return settings


def _tell(run: Run, topic: str, *, as_json: bool) -> None:
    """What became of the lines; ends the command where some of them stayed unacknowledged."""
    if as_json:
        print_json(
            {
                "topic": topic,
                "sent": run.acknowledged + run.failed,
                "acknowledged": run.acknowledged,
                "failed": run.failed,
                "not_sent": run.not_sent,
                **({} if run.transactions is None else {"committed": run.transactions.committed}),
                **({} if run.audit is None else {"counted": run.audit.counted}),
            }
        )
    if run.why_stopped is not None:
        undecided = run.transactions is not None and run.transactions.undecided
        code = EXIT_UNDECIDED if undecided else EXIT_FAILED
        fail(f"{run.why_stopped}: {run.counts()}{_reason(run)}", code)
    if run.lacking:
        what = "unacknowledged" if run.transactions is None else "uncommitted"
        fail(f"{run.lacking} of {run.lines} lines stayed {what}: {run.counts()}{_reason(run)}")
    if run.audit is not None and run.audit.uncounted:
        fail(
            f"the counts of {run.audit.uncounted} lines were not acknowledged ({run.audit.first_error}):"
            f" {run.counts()}; `kraft audit` will find them uncounted"
        )
    if not as_json:
        console.print(run.counts(), style="dim", markup=False)


def _audit_options(audit: bool, topic: str | None, window: str | None) -> AuditOptions | None:
    """None: nothing is counted. Raises UserError, wrong usage."""
    if not audit:
        if topic is not None or window is not None:
            raise UserError("--audit-topic and --audit-window go with --audit", EXIT_USAGE)
        return None
    window_ms = DEFAULT_WINDOW_MS if window is None else parse_duration_ms(window, "--audit-window")
    if not window_ms:
        raise UserError("--audit-window is longer than nothing", EXIT_USAGE)
    name = DEFAULT_AUDIT_TOPIC if topic is None else require_text(topic, "the audit topic's name")
    return AuditOptions(name, window_ms)


def _run(
    wanted: dict[str, Any],
    target: Target,
    line_format: LineFormat,
    files: list[Path],
    transaction_records: int | None,
    counts: AuditOptions | None,
) -> Run:
    """The run, ended: every line that was read is counted."""
    timeout_s = _timeout_s(wanted)
    watch = StallWatch(Stalls(target.topic, error_codes(), timeout_s))
    sources = open_sources(files)
    producer = _producer(wanted, watch)
    check_partition(producer, target, METADATA_TIMEOUT_S)
    interrupts = Interrupts()
    transactions = None
    if "transactional.id" in wanted:
        transactions = Transactions(
            producer, transaction_records, timeout_s and timeout_s + MARGIN_S, lambda: interrupts.count > 0
        )
    audit = None
    if counts is not None:
        audit = LineAudit(wanted, counts, target.topic, in_transactions=transactions is not None)
    run = Run(producer, target, line_format, watch.stalls, interrupts, transactions, audit)
    with interrupts.counted(), shown(run, sources) as on_read:
        try:
            if transactions is not None:
                transactions.start()
            for source in sources:
                run.send(source, on_read)
                if run.why_stopped is not None:
                    break
        except UserError as error:
            run.why_stopped = str(error)
        finally:
            run.finish(timeout_s)
            if audit is not None:
                audit.finish()
    if interrupts.count and not run.lacking and all(source.is_terminal for source in sources):
        run.why_stopped = None  # Ctrl-C is how typing ends
    return run


def _producer(wanted: dict[str, Any], watch: StallWatch) -> Any:
    from confluent_kafka import Producer

    own = {
        "error_cb": watch.on_error,
        "stats_cb": watch.on_statistics,
        "statistics.interval.ms": STATISTICS_MS,
        "debug": "msg",  # where librdkafka tells why brokers refuse what it will send again
        "log_level": 7,
    }
    return client_of(Producer, {**wanted, **own}, watch)


def _timeout_s(wanted: dict[str, Any]) -> float:
    """How long librdkafka tries to send a record; 0: without end."""
    text = str(wanted.get("delivery.timeout.ms", wanted["message.timeout.ms"]))
    return int(text) / 1000 if text.isascii() and text.isdecimal() else MESSAGE_TIMEOUT_MS / 1000


def _reason(run: Run) -> str:
    return f"; first reason: {run.first_error}" if run.first_error else ""


def _parse_headers(pairs: list[str]) -> list[tuple[str, bytes]]:
    headers = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"--header takes K=V, not {pair!r}", EXIT_USAGE)
        require_text(pair, "--header")
        headers.append((key, value.encode()))
    return headers
