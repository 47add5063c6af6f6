"""`kraft topics elect-leaders`: has the controller elect leaders now (KIP-183, KIP-460)."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import console, note_failed, print_json, print_line
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.elections import ElectionType, ElectLeadersRequest, TopicPartitions
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError

ELECT_LEADERS_VERSION = 2


class ElectionChoice(Enum):
    """How leaders are chosen, as Kafka's tool calls it. It has no default there, either: one of them may lose
    records, and a script should say which one it means."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect_leaders(
    name: Annotated[
        str | None, typer.Argument(help="The topic; --all for all topics.", show_default=False)
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="A partition of the topic; without: all of them.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", "--all-topic-partitions", help="All partitions of all topics.")
    ] = False,
    election_type: Annotated[
        ElectionChoice | None,
        typer.Option(
            help="preferred: the first replica, where it is in sync. unclean: any live replica, for partitions"
            " without a leader; records may be lost. One of them has to be named.",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Elect leaders now, of a topic's partitions or of all.

    Partitions that need no election stay as they are. Exit code 0: done; 1: a partition could not get the
    leader, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    if election_type is None:
        raise UserError("name the type of election: --election-type preferred, or unclean", EXIT_USAGE)
    if (name is None) != every or (every and partition):
        raise UserError("name one topic, with --partition if not all of it is meant, or --all", EXIT_USAGE)
    election = ElectionType[election_type.name]

    async def work(admin: AdminClient) -> list[tuple[str, int, int, str | None]]:
        wanted = None if name is None else [await _partitions(admin, name, partition)]
        request = ElectLeadersRequest(
            election_type=election, topic_partitions=wanted, timeout_ms=CHANGE_TIMEOUT_MS
        )
        answer: Any = await admin.request(request, version=ELECT_LEADERS_VERSION)
        raise_for(answer.error_code, None, "leaders were not elected", change="leaders were elected")
        return [
            (topic.topic, result.partition_id, result.error_code, result.error_message)
            for topic in answer.replica_election_results
            for result in topic.partition_result
        ]

    results = run_admin(bootstrap_server, work)
    document = _document(election, results)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if document["failed"]:
        raise typer.Exit(EXIT_FAILED)


async def _partitions(admin: AdminClient, name: str, wanted: list[int] | None) -> TopicPartitions:
    if wanted:
        return TopicPartitions(topic=name, partitions=wanted)
    topic = (await admin.metadata([name])).topics[0]
    raise_for(topic.error_code, None, f"topic {name}")
    return TopicPartitions(topic=name, partitions=sorted(p.partition_index for p in topic.partitions))


def _document(election: ElectionType, results: list[tuple[str, int, int, str | None]]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "election_type": election.name.lower(),
        "elected": [],
        "not_needed": [],
        "failed": [],
    }
    for topic, partition, code, message in sorted(results, key=lambda result: result[:2]):
        row: dict[str, Any] = {"topic": topic, "partition": partition}
        if not code:
            document["elected"].append(row)
        elif code == ErrorCode.ELECTION_NOT_NEEDED:
            document["not_needed"].append(row)
        else:
            error = ErrorCode(code)
            document["failed"].append({**row, "error": error.name, "message": message or error.message})
    return document


def _print(document: dict[str, Any]) -> None:
    for row in document["elected"]:
        print_line(f"{row['topic']}-{row['partition']}")
    note_failed(document["failed"])
    console.print(
        f"elected: {len(document['elected'])}, not needed: {len(document['not_needed'])},"
        f" failed: {len(document['failed'])}"
    )
