"""`kraft ingest audit`: whether a table has every record of the topics once, and as the cluster has it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.ingest.run import failures_told, require_ingest
from kraft.cli.shared.bootstrap import bootstrap_text
from kraft.cli.shared.command_config import config_of
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, AllowHoles, Bootstrap, ClientOption, Json, parse_pairs
from kraft.cli.shared.output import complain, print_json, print_line, print_rows
from kraft.cli.shared.tables import Rows
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from kraft.ingest.audit import AuditReport, ClusterView, PartitionReport, TableView

_BUDGET_S = 20.0
"""For elections; a partition that has no leader for so long cannot be told about."""
_SHOWN_RANGES = 5
_EXIT = {True: EXIT_DONE, False: EXIT_FAILED, None: EXIT_UNDECIDED}


def audit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The table's folder.", show_default=False)],
    allow_holes: AllowHoles = False,
    client_option: ClientOption = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Prove that a table has every record of its topics once, with the same key and value: it reads the table and the
    topics.

    Exit code 0: complete; 1: records are missing, doubled or different, or the table is damaged; 3: of some offsets it
    cannot be told, since the cluster has deleted them or does not answer. Rows whose record a compaction has removed
    from its topic since are no fault.
    """
    require_ingest()
    from kraft.ingest.audit import audit as audited
    from kraft.ingest.audit import read_table
    from kraft.ingest.folder import read_properties
    from kraft.ingest.options import check_client_options

    with failures_told():
        folder = folder.absolute()
        if read_properties(folder) is None:
            raise UserError(
                f"{folder} is no table: name the folder that was given to `kraft ingest --to`", EXIT_USAGE
            )
        view = read_table(folder)
        options = check_client_options(
            {
                **config_of(bootstrap_server).options,
                **dict(parse_pairs(client_option or [], "--client-option")),
            }
        )
        with _cluster(view, bootstrap_text(bootstrap_server), options, allow_holes=allow_holes) as cluster:
            report = audited(view, cluster)
    if as_json:
        print_json(report.document())
    else:
        _show(report)
    raise typer.Exit(_EXIT[report.complete])


@contextlib.contextmanager
def _cluster(
    view: TableView, bootstrap: str, client_options: Mapping[str, str], *, allow_holes: bool
) -> Iterator[ClusterView | None]:
    """None, with a sentence, if no broker answers."""
    from kraft.ingest.audit import ClusterView
    from kraft.spark.errors import ClusterUnavailableError
    from kraft.spark.options import parse_options
    from kraft.spark.reading import driver_client

    topics = sorted({row.topic for row in view.audit_rows})
    options = parse_options(
        {
            **client_options,
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": ",".join(topics) or "-",
            "kafka.isolation.level": "read_committed",
        }
    )
    with driver_client(options, budget_s=_BUDGET_S) as client:
        try:
            client.topics([])
        except ClusterUnavailableError as error:
            complain(f"{error} The table is looked at by itself.")
            yield None
        else:
            yield ClusterView(client, allow_holes)


def _show(report: AuditReport) -> None:
    table = Rows(["topic", "partition", "from", "to", "rows", "missing", "duplicated", "different"])
    for one in report.partitions:
        counts = (one.missing.count, one.duplicated.count, one.different.count)
        places = (one.key.partition, one.start, one.end, one.rows)
        table.add(one.key.topic, *map(str, places), *map(str, counts))
    print_rows(table)
    for one in report.partitions:
        for line in _faults(one):
            print_line(f"{one.key.topic}-{one.key.partition}: {line}")
    for sentence in report.faults:
        print_line(sentence)
    kinds = (
        ("is referenced and not there", report.lost_files),
        ("cannot be read", report.damaged_files),
        ("is added twice by the table's log", report.repeated_files),
    )
    for what, paths in kinds:
        for path in paths:
            print_line(f"file {path} {what}")
    if report.unreferenced_files:
        print_line(
            f"{report.unreferenced_files} files are there that the table does not reference: no fault;"
            " `kraft ingest vacuum` removes them"
        )
    words = {True: "complete", False: "not complete", None: "no fault found, but not all could be proved"}
    print_line(words[report.complete])


def _faults(one: PartitionReport) -> Iterator[str]:
    for what, found in (
        ("missing", one.missing),
        ("duplicated", one.duplicated),
        ("different", one.different),
    ):
        if found.ranges:
            named = ", ".join(
                str(start) if end == start + 1 else f"{start} to {end - 1}"
                for start, end in found.ranges[:_SHOWN_RANGES]
            )
            more = ", …" if len(found.ranges) > _SHOWN_RANGES else ""
            yield f"{what}: offsets {named}{more}"
    yield from one.faults
    for start, end, why in one.not_proved:
        yield f"not proved: offsets {start} to {end - 1}: {why}"
