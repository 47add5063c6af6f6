"""`kraft log-dirs`: how much brokers' data directories hold, by topic, and how much room is left (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, cast

import typer

from kraft.cli.reassign.targets import parse_brokers
from kraft.cli.shared.admin_client import (
    DISK_LOOK_TIMEOUT_S,
    AdminClient,
    BrokerAwayError,
    raise_for,
    run_admin,
)
from kraft.cli.shared.documents import Document
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import Wide, complain, console, is_terminal, print_json, print_line, print_rows
from kraft.cli.shared.tables import Rows
from kraft.cli.topics.names import TopicChoice
from kraft.cluster_problems import bytes_text
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED

LOG_DIRS_VERSION = 5


def log_dirs(
    broker: Annotated[
        str | None, typer.Option(metavar="ID[,…]", help="Only these brokers.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this topic; or a regular expression for whole names."),
    ] = None,
    wide: Wide = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the data directories of brokers: what each holds of which topic, and how much room its disk has.

    Sizes are of the segments; where output is piped, with --wide and --json they are bytes. Exit code 0: shown;
    1: refused, or a directory is offline; 2: wrong usage; 3: no broker answers, or one of them does not.
    """
    choice = TopicChoice(topic)
    chosen = None if broker is None else parse_brokers(broker, "--broker")

    async def work(admin: AdminClient) -> list[Document]:
        wanted = await _partitions(admin, choice)
        asked = sorted(set(await admin.registered_brokers() if chosen is None else chosen))
        await admin.metadata([])  # where they are
        return list(await asyncio.gather(*(_describe(admin, one, wanted) for one in asked)))

    documents = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json({"brokers": documents})
    else:
        _show(documents, wide)
    troubles = [row for row in _with_dirs(documents) if "error" in row]
    if not as_json:
        for row in troubles:
            where = f"broker {row['id']}, {row['path']}: " if "path" in row else ""
            complain(f"{where}{row['message']} ({row['error']})")
    if troubles:
        raise typer.Exit(EXIT_FAILED if any("path" in row for row in troubles) else EXIT_UNDECIDED)


async def _partitions(admin: AdminClient, choice: TopicChoice) -> list[DescribableLogDirTopic] | None:
    """The partitions to ask for; None: all, also of topics that have just been deleted."""
    if choice.is_all:
        return None
    topics = choice.among((await admin.metadata(choice.asked)).topics)
    for topic in topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
    if not topics:
        console.print(choice.none, markup=False)
    return [
        DescribableLogDirTopic(
            topic=topic.name or "", partitions=[partition.partition_index for partition in topic.partitions]
        )
        for topic in topics
    ]


async def _describe(
    admin: AdminClient, broker_id: int, wanted: list[DescribableLogDirTopic] | None
) -> Document:
    """One broker's directories, or why they are not known."""
    request = DescribeLogDirsRequest(topics=wanted)
    try:
        answer = await admin.request_of(
            broker_id, request, version=LOG_DIRS_VERSION, timeout_s=DISK_LOOK_TIMEOUT_S
        )
    except BrokerAwayError as error:
        return _unknown(broker_id, ErrorCode.BROKER_NOT_AVAILABLE, str(error))
    except ConnectionLostError as error:
        return _unknown(broker_id, ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}: {error}")
    response = cast("DescribeLogDirsResponse", answer)
    raise_for(response.error_code, None, f"broker {broker_id} did not describe its directories")
    return {"id": broker_id, "dirs": [_directory(result) for result in response.results]}


def _unknown(broker_id: int, error: ErrorCode, message: str) -> Document:
    return {"id": broker_id, "dirs": [], "error": error.name, "message": message}


def _directory(result: DescribeLogDirsResult) -> Document:
    document: Document = {
        "path": result.log_dir,
        "total_bytes": result.total_bytes,
        "usable_bytes": result.usable_bytes,
        "partitions": [
            {"topic": topic.name, "partition": one.partition_index, "size_bytes": one.partition_size}
            for topic in result.topics
            for one in topic.partitions
        ],
    }
    if result.error_code:
        error = ErrorCode(result.error_code)
        document |= {"error": error.name, "message": error.message}
    return document


def _with_dirs(documents: Iterable[Document]) -> list[Document]:
    """A row for each broker and one for each of its directories."""
    return [row for one in documents for row in (one, *({"id": one["id"], **found} for found in one["dirs"]))]


def _show(documents: list[Document], wide: bool) -> None:
    """Prints brokers: on a terminal a table for each directory, below its room; piped, one for all."""
    if not is_terminal():
        print_rows(sizes_table(documents, wide=True))
        return
    is_first = True
    for one in documents:
        for directory in one["dirs"]:
            if not is_first:
                print_line("")
            is_first = False
            print_line(f"broker {one['id']}, {directory['path']}: {_room_text(directory)}")
            print_rows(
                sizes_table([{"id": one["id"], "dirs": [directory]}], wide=wide),
                wide=wide,
            )


def _room_text(directory: Document) -> str:
    if "error" in directory:
        return "offline"
    return f"{bytes_text(directory['usable_bytes'])} of {bytes_text(directory['total_bytes'])} left"


def sizes_table(documents: Iterable[Document], *, wide: bool) -> Rows:
    """How much each directory holds of each topic, the largest first; in bytes, and with the directory, if `wide`."""
    table = Rows(
        ["broker", "directory", "usable", "total", "topic", "partitions", "size"]
        if wide
        else ["topic", "partitions", "size"]
    )
    for one in documents:
        for directory in one["dirs"]:
            place = [
                str(one["id"]),
                directory["path"],
                _bytes(directory["usable_bytes"]),
                _bytes(directory["total_bytes"]),
            ]
            for topic, partitions, size_bytes in _by_topic(directory["partitions"]):
                if wide:
                    table.add(*place, topic, str(partitions), str(size_bytes))
                else:
                    table.add(topic, str(partitions), bytes_text(size_bytes))
            if wide and not directory["partitions"]:
                table.add(*place, "", "0", "0")
    return table


def _bytes(size_bytes: int) -> str:
    return "" if size_bytes < 0 else str(size_bytes)


def _by_topic(partitions: Iterable[Document]) -> list[tuple[str, int, int]]:
    """Topic, how many partitions, and their bytes."""
    sums: dict[str, list[int]] = {}
    for one in partitions:
        sums.setdefault(one["topic"], []).append(one["size_bytes"])
    return sorted(
        ((topic, len(sizes), sum(sizes)) for topic, sizes in sums.items()), key=lambda row: (-row[2], row[0])
    )
