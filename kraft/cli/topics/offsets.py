"""`kraft topics offsets`: where partitions begin, end, or were at a time; each leader is asked by itself."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from kraft.cli.shared.admin_client import (
    DISK_LOOK_TIMEOUT_S,
    LIST_OFFSETS_VERSION,
    AdminClient,
    BrokerAwayError,
    raise_for,
    run_admin,
)
from kraft.cli.shared.documents import Document, time_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import note_failed, print_json, print_rows
from kraft.cli.shared.tables import Rows
from kraft.cli.shared.times import parse_time_ms
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.metadata import MetadataResponsePartition
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED

NAMED_TIMES = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max-timestamp": MAX_TIMESTAMP}
UNKNOWN = -1
_AWAY = frozenset(
    error.name
    for error in (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""After these nobody has said no: another try may tell."""


def offsets(
    name: Annotated[str, typer.Argument(help="The topic's name.", show_default=False)],
    time: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|max-timestamp|T",
            help="latest: the end, below which all is committed. T: the first record that is not older, by its"
            " timestamp: milliseconds since 1970, or as in 2026-01-31T12:00:00, which is UTC unless it says +01:00.",
        ),
    ] = "latest",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show an offset of each partition: its end, its first, or that of a time.

    Offset and timestamp are -1, in a table nothing, where no record is like that. Exit code 0: shown; 1: the topic or
    a partition was refused; 2: wrong usage; 3: no broker, or of a partition no leader, answers.
    """
    timestamp = parse_time(time)

    async def work(admin: AdminClient) -> list[Document]:
        topic = (await admin.metadata([name])).topics[0]
        raise_for(topic.error_code, None, f"topic {name}")
        return await _offsets(admin, name, topic.partitions, timestamp)

    rows = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    failed = [{"topic": name, **row} for row in rows if "error" in row]
    if as_json:
        print_json({"name": name, "offsets": rows})
    else:
        print_rows(offsets_table(name, rows))
        note_failed(failed)
    errors = {row["error"] for row in failed}
    if errors:
        raise typer.Exit(EXIT_UNDECIDED if errors <= _AWAY else EXIT_FAILED)


def parse_time(text: str) -> int:
    """What ListOffsets takes: one of its names, or milliseconds since 1970. Raises UserError."""
    if text in NAMED_TIMES:
        return NAMED_TIMES[text]
    return parse_time_ms(text, f"--time, where it is none of {', '.join(NAMED_TIMES)},")


def offsets_table(name: str, rows: list[Document]) -> Rows:
    """The offsets that are known, in columns."""
    table = Rows(["topic", "partition", "offset", "timestamp"])
    for row in rows:
        if "error" not in row:
            offset = "" if row["offset"] == UNKNOWN else str(row["offset"])
            table.add(name, str(row["partition"]), offset, time_text(row["timestamp"]))
    return table


async def _offsets(
    admin: AdminClient, name: str, partitions: list[MetadataResponsePartition], timestamp: int
) -> list[Document]:
    """A row for each partition, in their order."""
    rows: list[Document] = []
    by_leader: dict[int, list[int]] = {}
    for partition in partitions:
        if partition.leader_id < 0:
            rows.append(_failed(partition.partition_index, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
    for leader, numbers in by_leader.items():
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        try:
            answer: Any = await admin.request_of(
                leader, request, version=LIST_OFFSETS_VERSION, timeout_s=DISK_LOOK_TIMEOUT_S
            )
        except BrokerAwayError as error:
            rows += [_failed(number, ErrorCode.BROKER_NOT_AVAILABLE, str(error)) for number in numbers]
        except ConnectionLostError as error:
            rows += [_failed(number, ErrorCode.NETWORK_EXCEPTION, str(error)) for number in numbers]
        else:
            found = cast("ListOffsetsResponse", answer).topics
            rows += [_row(result) for topic in found for result in topic.partitions]
    return sorted(rows, key=lambda row: row["partition"])


def _row(result: ListOffsetsPartitionResponse) -> Document:
    if result.error_code:
        return _failed(result.partition_index, ErrorCode(result.error_code))
    return {
        "partition": result.partition_index,
        "offset": result.offset,
        "timestamp": result.timestamp,
    }


def _failed(partition: int, error: ErrorCode, message: str | None = None) -> Document:
    return {"partition": partition, "error": error.name, "message": message or error.message}
