"""`kraft audit TOPIC`: compares what producers counted with what is stored and, if asked, with what was ingested."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraft.auditing.comparing import (
    DIFFERENT,
    Known,
    Numbers,
    Outcome,
    TooManyWindowsError,
    Verdict,
    Window,
    WindowsDifferError,
    judge,
    outcome,
)
from kraft.auditing.messages import DEFAULT_AUDIT_TOPIC
from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.command_config import config_of
from kraft.cli.shared.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ClientOption,
    Json,
    parse_pairs,
    require_text,
)
from kraft.cli.shared.output import NAMED_MAX, Wide, complain, print_json, print_line, print_rows
from kraft.cli.shared.tables import Rows
from kraft.cli.shared.times import parse_duration_ms, parse_time_ms
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.cli.audit.stored import Counts, Source
    from kraft.cli.audit.tables import FormerRange

SHOWN_MAX = 20
"""Windows that are equal are shown, if there are no more than these."""
_EXIT_CODES = {
    Outcome.EQUAL: EXIT_DONE,
    Outcome.DIFFERENT: EXIT_FAILED,
    Outcome.UNDECIDED: EXIT_UNDECIDED,
}


class Question(NamedTuple):
    """What is to be compared."""

    topic: str
    client_options: Mapping[str, str]
    """Of the connector's client, the brokers among them."""
    audit_topic: str
    table: Path | None
    since_ms: int | None
    grace_ms: int


class Audit:
    """The numbers of a topic, judged."""

    def __init__(
        self,
        topic: str,
        window_ms: int,
        numbers: Numbers,
        known: Known,
        counts: Counts,
        former_ranges: Sequence[FormerRange],
    ) -> None:
        self.topic = topic
        self.former_ranges = former_ranges
        self.window_ms = window_ms
        self.windows = [numbers.window(start_ms) for start_ms in numbers.starts]
        self.verdicts = {window.start_ms: judge(window, window_ms, known) for window in self.windows}
        self.outcome = outcome(self.verdicts)
        self.has_table = numbers.ingested is not None
        self.notes = [*_notes(known, counts, self.windows), *_former_notes(former_ranges, known)]

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "topic": self.topic,
            "verdict": self.outcome.value,
            "window_ms": self.window_ms,
            "produced": sum(window.produced for window in self.windows),
            "stored": sum(window.stored for window in self.windows),
            "ingested": sum(window.ingested or 0 for window in self.windows) if self.has_table else None,
            "windows": [
                {
                    "window_start_ms": window.start_ms,
                    "produced": window.produced,
                    "stored": window.stored,
                    "taken": window.taken,
                    "ingested": window.ingested,
                    "former": window.former,
                    "hosts": dict(sorted(window.hosts.items())),
                    "verdict": self.verdicts[window.start_ms].value,
                }
                for window in self.windows
            ],
            "former": [former.document() for former in self.former_ranges],
            "notes": self.notes,
        }

    def show(self, *, everything: bool, wide: bool) -> None:
        """For people: all windows if they are few, else those that are not equal."""
        all_ = everything or len(self.windows) <= SHOWN_MAX
        columns = ["window", "produced", "stored", *(["ingested"] if self.has_table else []), "verdict"]
        table = Rows(columns)
        for window in self.windows:
            verdict = self.verdicts[window.start_ms]
            if all_ or verdict is not Verdict.EQUAL:
                ingested = [f"{window.ingested}"] if self.has_table else []
                table.add(
                    _time_text(window.start_ms),
                    f"{window.produced}",
                    f"{window.stored}",
                    *ingested,
                    verdict.value.replace(" ", "-"),
                )
        print_rows(table, wide=wide)
        for note in self.notes:
            print_line(note)
        for line in self.summary():
            print_line(line)

    def summary(self) -> tuple[str, str]:
        """Two lines on all windows."""
        found = self.document()
        ingested = f", {found['ingested']:,} ingested" if self.has_table else ""
        equal = sum(verdict is Verdict.EQUAL for verdict in self.verdicts.values())
        different = sum(verdict in DIFFERENT for verdict in self.verdicts.values())
        return (
            f"{self.topic}: {found['produced']:,} produced, {found['stored']:,} stored{ingested}",
            f"{len(self.windows)} windows: {equal} equal, {different} different",
        )


def audit(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    table: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Compare with the rows of this table, too.", show_default=False),
    ] = None,
    audit_topic: Annotated[
        str, typer.Option(metavar="NAME", help="Where producers send their counts.")
    ] = DEFAULT_AUDIT_TOPIC,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Windows from then on: ISO 8601, or ms.", show_default=False),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(metavar="DURATION", help="A window is judged so long after its end."),
    ] = "PT1M",
    everything: Annotated[bool, typer.Option("--all", help="Show the windows that are equal, too.")] = False,
    client_option: ClientOption = None,
    wide: Wide = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Compare, window by window, the records that producers counted with those stored and ingested.

    Producers count with `kraft produce --audit`, or as examples/audited_producer.py does, by the records' timestamps;
    late records belong to their own windows. lost: fewer stored than acknowledged; uncounted: more stored than counted
    (a producer that does not count, or one that died before it sent its counts); not-ingested, doubled: fewer, or more,
    rows than records in the offsets that the table has taken. open, behind: counts, records of an open transaction, or
    the table may still come.
    unknown: records or counts are deleted, compacted away or missing. former: the table has rows of a deleted topic of
    this name; they are told and not judged.

    Exit code 0: all windows that can be judged are equal; 1: one is different; 2: wrong usage; 3: cannot tell.
    """
    require_text(topic, "the topic's name")
    question = Question(
        topic,
        {
            **config_of(bootstrap_server).options,
            **dict(parse_pairs(client_option or [], "--client-option")),
            "kafka.bootstrap.servers": bootstrap_text(bootstrap_server),
        },
        audit_topic,
        table,
        None if from_time is None else parse_time_ms(from_time, "--from-time"),
        parse_duration_ms(grace, "--grace"),
    )
    try:
        result = _audit(question)
    except (TooManyWindowsError, WindowsDifferError) as error:
        raise UserError(str(error), EXIT_UNDECIDED) from error
    if as_json:
        print_json(result.document())
    else:
        result.show(everything=everything, wide=wide)
    if result.outcome is Outcome.UNDECIDED:
        complain(_why_undecided(result, audit_topic))
    raise typer.Exit(_EXIT_CODES[result.outcome])


def _audit(question: Question) -> Audit:
    """Raises UserError, TooManyWindowsError, WindowsDifferError."""
    require_connector()
    from kraft.cli.audit.stored import Source
    from kraft.ingest.options import check_client_options
    from kraft.spark.errors import ConnectorError, OptionError

    try:
        check_client_options(question.client_options)
        with Source(question.client_options) as source:
            return _compared(question, source)
    except OptionError as error:
        raise UserError(str(error), EXIT_USAGE) from error
    except ConnectorError as error:
        raise UserError(str(error), EXIT_UNDECIDED) from error


def _compared(question: Question, source: Source) -> Audit:
    """Counts are read before records: what is counted is stored. So are rows: what was taken is stored."""
    from kraft.cli.audit.stored import FOREVER

    topic = question.topic
    topic_id = source.topic_id(topic)
    now_ms = round(time.time() * 1000)
    counts = source.counts(question.audit_topic, topic)
    window_ms = counts.produced.window_ms()
    since_ms = None if question.since_ms is None else question.since_ms - question.since_ms % window_ms
    produced = {
        start_ms: hosts
        for start_ms, hosts in counts.produced.by_window(window_ms).items()
        if since_ms is None or start_ms >= since_ms
    }
    former_ranges: Sequence[FormerRange] = ()
    is_whole = True
    if question.table is None:
        found = source.stored(topic, window_ms, since_ms, {})
        numbers = Numbers(produced, found.stored)
    else:
        from kraft.cli.audit.tables import read_table

        ingested = read_table(question.table, topic, topic_id, window_ms, since_ms)
        found = source.stored(topic, window_ms, since_ms, ingested.ranges)
        numbers = Numbers(
            produced, found.stored, found.taken, ingested.rows, ingested.shared, ingested.former
        )
        former_ranges, is_whole = ingested.former_ranges, ingested.is_whole
    known = Known(
        open_from_ms=now_ms - question.grace_ms,
        is_held_back=found.is_held_back,
        stored_from_ms=found.stored_from_ms,
        counted_from_ms=counts.counted_from_ms if produced else FOREVER,
        is_compacted=source.is_compacted(topic),
        counts_are_missing=counts.produced.missing > 0,
        table_is_whole=is_whole,
    )
    return Audit(topic, window_ms, numbers, known, counts, former_ranges)


def require_connector() -> None:
    """Raises UserError unless what reads topics in columns is installed."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("pyarrow", "numpy", "deltalake")):
        raise UserError("kraft audit reads with the connector; install it with: pip install 'kraft[ingest]'")


def _notes(known: Known, counts: Counts, windows: list[Window]) -> list[str]:
    """What bears on the verdicts."""
    notes = []
    if counts.produced.missing:
        notes.append(
            f"{counts.produced.missing} messages with counts are missing: windows may seem uncounted"
        )
    if counts.unreadable:
        notes.append(f"{counts.unreadable} messages of the audit topic are no counts")
    if known.is_held_back:
        notes.append("an open transaction holds records back: they cannot be counted yet")
    if known.is_compacted:
        notes.append("the topic is compacted: fewer records may be stored than were produced")
    if any(window.start_ms < known.stored_from_ms for window in windows):
        notes.append("the oldest records have expired: early windows may lack some")
    return notes


def _former_notes(ranges: Sequence[FormerRange], known: Known) -> list[str]:
    """Which offsets are of topics that had this name before."""
    notes = []
    for topic_id in dict.fromkeys(one.topic_id for one in ranges):
        of_it = [one for one in ranges if one.topic_id == topic_id]
        named = ", ".join(
            f"{one.start} to {one.end} of partition {one.partition}" for one in of_it[:NAMED_MAX]
        )
        more = f" and those of {len(of_it) - NAMED_MAX} more partitions" if len(of_it) > NAMED_MAX else ""
        notes.append(
            f"offsets {named}{more} are of a former topic of this name ({of_it[0].document()['topic_id']}): windows"
            " with rows of it are not judged"
        )
    if ranges and not known.table_is_whole:
        notes.append(
            "the table has more or fewer rows than were ingested, so that they cannot be told from the former topic's:"
            " kraft ingest audit names them"
        )
    return notes


def _why_undecided(result: Audit, audit_topic: str) -> str:
    if not result.windows:
        return f"cannot tell: {result.topic} is empty, and no producer has counted in {audit_topic}"
    if not any(window.produced for window in result.windows):
        return (
            f"cannot tell: no producer has counted records of {result.topic} in {audit_topic};"
            " `kraft produce --audit` does"
        )
    return "cannot tell: see the verdicts of the windows"


def _time_text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return f"{time_ms}"
