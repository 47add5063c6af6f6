"""`kraft topics delete-records`: gives up the records of partitions below an offset (KIP-107).

It takes a topic and an offset, or the file of offsets of Kafka's delete-records tool, and asks each partition's leader
by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from kraft.cli.reassign.moves import partitions_of
from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, BrokerAwayError, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import note_failed, print_json, print_line
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

DELETE_RECORDS_VERSION = 2
HIGH_WATERMARK_NAME = "high-watermark"
_FILE_FORMAT = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}'
_UNDECIDED = frozenset({ErrorCode.NETWORK_EXCEPTION.name, ErrorCode.REQUEST_TIMED_OUT.name})
"""After these, records may be gone or not."""
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1

Offsets = dict[TopicPartition, int]


def delete_records(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME[:P,…]", help="The topic, all of it or these partitions.", show_default=False
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET",
            help="What goes: all below it; high-watermark: all that is committed.",
            show_default=False,
        ),
    ] = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            help=f"Instead, an offset for each partition; -1 is its high watermark. {_FILE_FORMAT}",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete the records of partitions below an offset, for good.

    Prints each partition's low watermark, below which no live replica has a record any more. Exit code 0:
    done; 1: a partition refused, or no broker or leader answers; 2: wrong usage; 3: none refused, but of one it
    cannot be told: its answer was lost, or came too late.
    """
    if (offset_json_file is None) == (target is None) or (target is None) != (before is None):
        raise UserError("name a topic and --before, or give an --offset-json-file", EXIT_USAGE)
    listed = {} if offset_json_file is None else parse_offsets(_read(offset_json_file))
    named = None if target is None or before is None else (*parse_target(target), _parse_before(before))

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        if named is None:
            return await _delete(admin, listed)
        topic, numbers, offset = named
        return await _delete(admin, dict.fromkeys(await partitions_of(admin, topic, numbers), offset))

    rows = run_admin(bootstrap_server, work)
    if as_json:
        print_json({"partitions": rows})
    else:
        _print(rows)
    errors = {row["error"] for row in rows if "error" in row}
    if errors:
        raise typer.Exit(EXIT_UNDECIDED if errors <= _UNDECIDED else EXIT_FAILED)


def parse_target(text: str) -> tuple[str, list[int] | None]:
    """The topic and the partitions in NAME[:P,…]; None: all of them. Raises UserError."""
    name, separator, numbers = text.partition(":")
    if not separator:
        return name, None
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isdecimal() and _is_in(0, int(part[:20]), _INT32_MAX) for part in parts):
        raise UserError(f"partitions are numbers, as in {name}:0,1, not {numbers!r}", EXIT_USAGE)
    return name, sorted({int(part) for part in parts})


def _parse_before(text: str) -> int:
    if text in (HIGH_WATERMARK_NAME, str(HIGH_WATERMARK)):
        return HIGH_WATERMARK
    if text.isdecimal() and _is_in(0, int(text[:20]), _INT64_MAX):
        return int(text)
    raise UserError(f"--before takes an offset, or {HIGH_WATERMARK_NAME}, not {text!r}", EXIT_USAGE)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", EXIT_USAGE) from error


def parse_offsets(text: str) -> Offsets:
    """The offsets in such a file. Raises UserError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the file of offsets is no JSON: {error}", EXIT_USAGE) from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise UserError(f"the file of offsets looks like {_FILE_FORMAT}", EXIT_USAGE)
    if document.get("version", 1) != 1:
        raise UserError(f"version {document['version']} of the file of offsets is unknown; use 1", EXIT_USAGE)
    offsets: Offsets = {}
    for entry in document["partitions"]:
        key, offset = _entry(entry)
        if key in offsets:
            raise UserError(f"partition {key} is named more than once", EXIT_USAGE)
        offsets[key] = offset
    if not offsets:
        raise UserError("the file of offsets names no partition", EXIT_USAGE)
    return offsets


def _entry(entry: Any) -> tuple[TopicPartition, int]:
    if isinstance(entry, dict):
        topic, partition, offset = entry.get("topic"), entry.get("partition"), entry.get("offset")
        if (
            isinstance(topic, str)
            and topic
            and _is_in(0, partition, _INT32_MAX)
            and _is_in(-1, offset, _INT64_MAX)
        ):
            return TopicPartition(topic, cast(int, partition)), cast(int, offset)
    raise UserError(
        f"{json.dumps(entry)} does not name a topic, a partition from 0 on and an offset from -1 on",
        EXIT_USAGE,
    )


def _is_in(low: int, value: object, high: int) -> bool:
    return type(value) is int and low <= value <= high


async def _delete(admin: AdminClient, offsets: Offsets) -> list[dict[str, Any]]:
    """What became of each partition, by name."""
    rows: list[dict[str, Any]] = []
    by_leader: dict[int, Offsets] = {}
    leaders = await _leaders(admin, {topic for topic, _ in offsets})
    for key, offset in offsets.items():
        leader = leaders.get(key)
        if leader is None:
            rows.append(_row(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif leader < 0:
            rows.append(_row(key, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            by_leader.setdefault(leader, {})[key] = offset
    for leader, wanted in by_leader.items():
        try:
            answer = await admin.request_of(leader, _request(wanted), version=DELETE_RECORDS_VERSION)
        except (BrokerAwayError, ConnectionLostError) as error:
            # What others have answered is told all the same.
            is_lost = isinstance(error, ConnectionLostError)
            code = ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.BROKER_NOT_AVAILABLE
            rows += [_row(key, code, str(error)) for key in wanted]
            continue
        for topic in cast("DeleteRecordsResponse", answer).topics:
            rows += [_result(topic.name, result) for result in topic.partitions]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


async def _leaders(admin: AdminClient, topics: set[str]) -> Mapping[TopicPartition, int]:
    answer = await admin.metadata(sorted(topics))
    return {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in answer.topics
        for partition in topic.partitions
    }


def _request(wanted: Offsets) -> DeleteRecordsRequest:
    topics: dict[str, DeleteRecordsTopic] = {}
    for (name, number), offset in wanted.items():
        topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
        topic.partitions.append(DeleteRecordsPartition(partition_index=number, offset=offset))
    return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=CHANGE_TIMEOUT_MS)


def _result(topic: str, result: DeleteRecordsPartitionResult) -> dict[str, Any]:
    key = TopicPartition(topic, result.partition_index)
    if result.error_code:
        return _row(key, ErrorCode(result.error_code))
    return {**key._asdict(), "low_watermark": result.low_watermark}


def _row(key: TopicPartition, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {**key._asdict(), "error": error.name, "message": message or error.message}


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "error" not in row:
            print_line(f"{row['topic']}-{row['partition']}  low watermark {row['low_watermark']}")
    note_failed(row for row in rows if "error" in row)
