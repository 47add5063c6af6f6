"""The process of `kraft ingest`: options into the loop, signals into its `stop`, its end into an exit code."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, cast

from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.output import console, print_json
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.ingest.model import Format, Table, Values
    from kraft.ingest.options import IngestOptions


class Request(NamedTuple):
    """The command's words."""

    topics: list[str]
    to: Path
    table_format: str
    values: str
    partition_by: str | None
    continuous: bool
    trigger: str
    max_file_size: str
    schema: Path | None
    commit_group: str | None
    master: str | None
    allow_holes: bool
    client_options: Mapping[str, str]
    metrics_port: int | None
    bootstrap: str


def run(request: Request, *, as_json: bool) -> None:
    """Raises UserError."""
    require_ingest()
    from kraft.cli.ingest.display import Display
    from kraft.ingest.run import Ports, ingest
    from kraft.ingest.spark_job import SparkJobs

    with failures_told(), contextlib.ExitStack() as stack:
        options = _options(request)
        stop = stack.enter_context(stopped_by_signals())
        jobs = SparkJobs(request.master)
        stack.callback(jobs.close)
        display = stack.enter_context(Display())
        if request.metrics_port is not None:
            from kraft.ingest.metrics import metrics_server

            port = stack.enter_context(metrics_server(request.metrics_port, lambda: display.progress))
            display.told(f"metrics: http://127.0.0.1:{port}/metrics")
        progress = ingest(options, Ports(jobs=jobs, watcher=display, stop=stop, compact=_compaction(options)))
    console.print(progress.summary(request.to), soft_wrap=True, markup=False)
    if as_json:
        print_json(progress.document())


def _compaction(options: IngestOptions) -> Callable[[Table], None]:
    """What happens between two cuts; a run that ends by itself starts without it."""
    if not options.continuous:
        return lambda _table: None
    from kraft.ingest.maintenance import ContinuousCompaction

    return ContinuousCompaction(options.folder, max_file_bytes=options.max_file_bytes)


def require_ingest() -> None:
    """Raises UserError unless the extra is installed."""
    if any(find_spec(name) is None for name in ("pyspark", "pyarrow", "deltalake")):
        raise UserError("ingestion needs Spark and deltalake; install them with: pip install 'kraft[ingest]'")


def _options(request: Request) -> IngestOptions:
    """Raises ConnectorError, UserError."""
    from kraft.ingest.model import TableProperties
    from kraft.ingest.options import (
        IngestOptions,
        check_client_options,
        check_folder,
        check_topics,
        parse_size,
        parse_trigger,
    )
    from kraft.spark.errors import OptionError

    if request.schema is not None and request.values != "json":
        raise OptionError("--schema names the fields of JSON values: add --values json.")
    try:
        schema_text = None if request.schema is None else request.schema.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--schema {request.schema} cannot be read: {error}.") from error
    table_format, values = cast("Format", request.table_format), cast("Values", request.values)
    return IngestOptions(
        topics=check_topics(tuple(request.topics)),
        folder=check_folder(request.to.absolute(), table_format),
        bootstrap=bootstrap_text(request.bootstrap),
        properties=TableProperties(table_format, values, request.partition_by),
        schema_text=schema_text,
        max_file_bytes=parse_size(request.max_file_size, "--max-file-size"),
        continuous=request.continuous,
        trigger_s=parse_trigger(request.trigger, "--trigger"),
        commit_group=request.commit_group,
        allow_holes=request.allow_holes,
        client_options=check_client_options(request.client_options),
    )


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Errors of the ingestion and of the file system become sentences: wrong usage 2, else 1. Raises UserError."""
    from kraft.spark.errors import ConnectorError, OptionError

    try:
        yield
    except OptionError as error:
        raise UserError(str(error), EXIT_USAGE) from error
    except ConnectorError as error:
        raise UserError(str(error), EXIT_FAILED) from error
    except OSError as error:
        where = f" {error.filename}:" if error.filename else ""
        raise UserError(f"the table's folder fails:{where} {error.strerror or error}") from error


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """SIGTERM, SIGHUP and Ctrl-C set the event; a second Ctrl-C ends the process at once, as a crash would."""
    stop = Event()

    def ask(number: int, _frame: object) -> None:
        if number == signal.SIGINT and stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
