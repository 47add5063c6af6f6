"""`kraft reassign`: moves partitions to other brokers while they serve (KIP-455): start, list, verify, cancel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from kraft.cli.admin import AdminClient, raise_for, run_admin
from kraft.cli.errors import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from kraft.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.output import console, print_json, print_line, print_table
from kraft.cli.reassign_throttle import Throttled, clear_throttles, set_throttles
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import DEBUGGING_REPLICA_ID
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignableTopic,
)

TIMEOUT_MS = 30_000
ALTER_VERSION = 1
LIST_VERSION = 0
LOOK_EVERY_S = 0.5
INT32_MAX = 2**31 - 1
"""Of broker ids and partitions."""

app = typer.Typer(help="Move partitions to other brokers while they serve.")

PartitionKey = tuple[str, int]

Topic = Annotated[str | None, typer.Argument(help="The topic.", show_default=False)]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, help="A partition of the topic; without: all of them."),
]


class _Ongoing(NamedTuple):
    """A reassignment that is under way, and how far its new replicas are."""

    key: PartitionKey
    state: OngoingPartitionReassignment
    log_ends: Mapping[int, int]
    """By broker, of those that answer."""

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "replicas": self.state.replicas,
            "adding": self.state.adding_replicas,
            "removing": self.state.removing_replicas,
            "leo": {str(broker): offset for broker, offset in self.log_ends.items()},
        }


@app.command()
def start(
    topic: Topic = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="ID[,…]", help="The brokers, preferred leader first.", show_default=False),
    ] = None,
    partition: Partitions = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help='Many at once, as Kafka\'s tool reads them: {"partitions": [{"topic", "partition", "replicas"}]}.',
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all have moved.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait at most, with --wait.")] = 600.0,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="What each broker may copy a second, and send as leader; verify takes it away at the end.",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Begin to move partitions; a new target takes the place of one that is under way.

    A throttle stays until nothing is being reassigned and verify, cancel, or start with --wait is run.
    Exit code 0: begun (with --wait: done); 1: refused, or no broker answers; 2: wrong usage; 3: not done within
    the time, or it cannot be told.
    """
    if (file is None) == (topic is None) or (topic is None) != (to is None) or (file and partition):
        raise UserError("name a topic and its brokers with --to, or give a --file", EXIT_USAGE)
    listed = None if file is None else _read(file)
    brokers = [] if to is None else _brokers(to)

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        if listed is not None:
            targets = listed
        else:
            assert topic is not None
            targets = dict.fromkeys(await _partitions(admin, topic, partition), brokers)
        if throttle is not None:
            await set_throttles(admin, await _replicas(admin, targets), targets, throttle)
        results = await _alter(admin, dict(targets))
        if wait:
            await _await_end(
                admin, [key for key, row in zip(targets, results, strict=True) if not row["error"]], timeout
            )
        if throttle is not None and (wait or all(row["error"] for row in results)):
            await _clear_if_done(admin)
        return results

    _conclude(run_admin(bootstrap_server, work), "done" if wait else "begun", as_json)


@app.command()
def cancel(
    topic: Topic = None,
    partition: Partitions = None,
    every: Annotated[bool, typer.Option("--all", help="All that are under way.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Stop reassignments that are under way: partitions go back to the brokers they began with.

    Once nothing is being reassigned any more, throttles of replication are taken away.
    Exit code 0: cancelled; 1: one was not, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    if (topic is None) != every or (every and partition):
        raise UserError("name one topic, with --partition if not all of it is meant, or --all", EXIT_USAGE)

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        if topic is not None and partition:
            keys: Iterable[PartitionKey] = [(topic, number) for number in partition]
        else:
            keys = [one.key for one in await _ongoing(admin, topic)]
        results = await _alter(admin, dict.fromkeys(keys))
        await _clear_if_done(admin)
        return results

    _conclude(run_admin(bootstrap_server, work), "cancelled", as_json)


@app.command()
def verify(
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Leave the throttles of replication as they are.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Say whether anything is still being reassigned; if not, take the throttles of replication away.

    A throttle of a broker that is not there stays: only that broker tells and alters its configs. Such brokers
    are named, with --json as brokers_away. Exit code 0: nothing is under way; 1: something is, or throttles of
    brokers that are there could not be taken away; 2: wrong usage; 3: no broker answers.
    """

    async def work(admin: AdminClient) -> tuple[list[_Ongoing], Throttled]:
        ongoing = await _ongoing(admin, None)
        if ongoing or preserve_throttles:
            return ongoing, Throttled([], [], [])
        return ongoing, await clear_throttles(admin)

    ongoing, cleared = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json(
            {
                "ongoing": [{"topic": one.key[0], "partition": one.key[1]} for one in ongoing],
                "throttles_removed": {"brokers": cleared.brokers, "topics": cleared.topics},
                "brokers_away": cleared.away,
            }
        )
    else:
        for one in ongoing:
            print_line(f"{one.key[0]}-{one.key[1]} is still being reassigned")
        if not ongoing:
            print_line("nothing is being reassigned")
        if cleared:
            console.print(f"throttles taken away from brokers {_ids(cleared.brokers) or '-'}", end="")
            console.print(f" and topics {', '.join(cleared.topics) or '-'}", markup=False, soft_wrap=True)
    _note_away(cleared)
    if ongoing:
        raise typer.Exit(EXIT_FAILED)


@app.command("list")
def list_(
    topic: Topic = None, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Show what is under way: replicas that come and go, and how far each one's log is."""

    async def work(admin: AdminClient) -> list[_Ongoing]:
        found = await _ongoing(admin, topic)
        return [one._replace(log_ends=await _log_ends(admin, one)) for one in found]

    ongoing = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json({"reassignments": [one.document() for one in ongoing]})
        return
    table = Table("partition", "replicas", "adding", "removing", "log ends", box=None)
    for one in ongoing:
        table.add_row(
            f"{one.key[0]}-{one.key[1]}",
            _ids(one.state.replicas),
            _ids(one.state.adding_replicas),
            _ids(one.state.removing_replicas),
            " ".join(f"{broker}:{offset}" for broker, offset in one.log_ends.items()),
        )
    if ongoing:
        print_table(table)
    else:
        console.print("nothing is being reassigned")


async def _alter(
    admin: AdminClient, targets: Mapping[PartitionKey, list[int] | None]
) -> list[dict[str, Any]]:
    """Begins or, where the target is None, cancels; one row for each target, in their order."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (name, number), replicas in targets.items():
        topics.setdefault(name, []).append(ReassignablePartition(partition_index=number, replicas=replicas))
    if not topics:
        return []
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    answer: Any = await admin.request(request, version=ALTER_VERSION)
    raise_for(
        answer.error_code, answer.error_message, "nothing was reassigned", change="anything was reassigned"
    )
    outcomes = {
        (response.name, result.partition_index): (result.error_code, result.error_message)
        for response in answer.responses
        for result in response.partitions
    }
    rows = []
    for name, number in targets:
        code, message = outcomes[name, number]
        row: dict[str, Any] = {"topic": name, "partition": number, "error": None}
        if code:
            error = ErrorCode(code)
            row |= {"error": error.name, "message": message or error.message}
        rows.append(row)
    return rows


async def _clear_if_done(admin: AdminClient) -> None:
    """Throttles are for reassignments; with the last of them they go."""
    if not await _ongoing(admin, None):
        _note_away(await clear_throttles(admin))


def _note_away(cleared: Throttled) -> None:
    if cleared.away:
        console.print(
            f"brokers that are not there keep the throttles that they may have: {_ids(cleared.away)};"
            " run kraft reassign verify when they are back",
            soft_wrap=True,
        )


async def _replicas(admin: AdminClient, keys: Iterable[PartitionKey]) -> dict[PartitionKey, list[int]]:
    """Where partitions are now. Raises UserError for one that is not there."""
    found = {}
    for topic in (await admin.metadata(dict.fromkeys(name for name, _ in keys))).topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
        for state in topic.partitions:
            found[topic.name or "", state.partition_index] = state.replica_nodes
    for name, number in keys:
        if (name, number) not in found:
            raise UserError(f"topic {name} has no partition {number}")
    return found


async def _ongoing(admin: AdminClient, topic: str | None) -> list[_Ongoing]:
    wanted = None
    if topic is not None:
        numbers = [number for _, number in await _partitions(admin, topic, None)]
        wanted = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)]
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=wanted)
    answer: Any = await admin.request(request, version=LIST_VERSION)
    raise_for(answer.error_code, answer.error_message, "reassignments cannot be listed")
    found = [
        _Ongoing((one.name, state.partition_index), state, {})
        for one in answer.topics
        for state in one.partitions
    ]
    return sorted(found, key=lambda one: one.key)


async def _log_ends(admin: AdminClient, one: _Ongoing) -> dict[int, int]:
    name, number = one.key
    await admin.metadata([name])
    ends: dict[int, int] = {}
    for broker in one.state.replicas:
        known = await admin.end_offsets(broker, name, [number], DEBUGGING_REPLICA_ID)
        if number in known:
            ends[broker] = known[number]
    return ends


async def _await_end(admin: AdminClient, keys: list[PartitionKey], timeout_s: float) -> None:
    """Raises UserError if some are still under way after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            # The controller tells nobody when it is done, so it is asked now and then.
            while {one.key for one in await _ongoing(admin, None)} & set(keys):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise UserError(
            f"not all have moved within {timeout_s:g} s; they go on: kraft reassign list", EXIT_UNDECIDED
        ) from error


async def _partitions(admin: AdminClient, name: str, wanted: list[int] | None) -> list[PartitionKey]:
    topic = (await admin.metadata([name])).topics[0]
    raise_for(topic.error_code, None, f"topic {name}")
    return [(name, number) for number in wanted or sorted(p.partition_index for p in topic.partitions)]


def _brokers(text: str) -> list[int]:
    try:
        return [_number(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--to takes broker ids, as in 1,2,3, and not {text!r}", EXIT_USAGE) from error


def _number(value: Any) -> int:
    """A broker's id, or a partition. Raises ValueError for what is none."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole and not (
        isinstance(value, str) and value.isdecimal()
    ):  # int() takes 1_2, 1.9 and True too
        raise ValueError(f"{value!r} is no number")
    number = int(value)
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"{number} is not between 0 and {INT32_MAX}")
    return number


def _read(file: Path) -> dict[PartitionKey, list[int]]:
    """The targets in a file of Kafka's format. Raises UserError."""
    targets: dict[PartitionKey, list[int]] = {}
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["partitions"]
        for row in rows:
            key = (str(row["topic"]), _number(row["partition"]))
            if key in targets:
                raise UserError(f"{file} names {key[0]}-{key[1]} twice", EXIT_USAGE)
            targets[key] = [_number(broker) for broker in row["replicas"]]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", EXIT_USAGE) from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{file} is not a list of reassignments"
            f' ({{"partitions": [{{"topic": …, "partition": …, "replicas": […]}}]}}): {error!r}',
            EXIT_USAGE,
        ) from error
    if not targets:
        raise UserError(f"{file} names no partition", EXIT_USAGE)
    return targets


def _conclude(rows: list[dict[str, Any]], done: str, as_json: bool) -> None:
    failed = [row for row in rows if row["error"]]
    if as_json:
        print_json({"partitions": rows})
    else:
        for row in rows:
            name = f"{row['topic']}-{row['partition']}"
            if not row["error"]:
                print_line(f"{name} {done}")
        for row in failed:
            console.print(
                f"{row['topic']}-{row['partition']}: {row['message']} ({row['error']})",
                markup=False,
                soft_wrap=True,
            )
        if not rows:
            console.print("nothing is being reassigned")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
