"""`kraft reassign`: moves partitions to other brokers while they serve (KIP-455): start, list, verify, cancel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kraft.cli.reassign.moves import (
    Ongoing,
    await_end,
    log_ends_of,
    ongoing,
    partitions_of,
    replicas_of,
)
from kraft.cli.reassign.targets import parse_brokers, read_targets
from kraft.cli.reassign.throttles import Throttled, clear_throttles, set_throttles
from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for, run_admin
from kraft.cli.shared.documents import Document, lag_text, log_ends_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import (
    Wide,
    console,
    is_terminal,
    note_failed,
    print_json,
    print_line,
    print_rows,
)
from kraft.cli.shared.tables import Rows
from kraft.cluster_problems import ids_text
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

ALTER_VERSION = 1

app = typer.Typer(help="Move partitions to other brokers while they serve.")

OneTopic = Annotated[str | None, typer.Argument(help="The topic.", show_default=False)]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, help="A partition of the topic; without: all of them."),
]


Concluded = tuple[list[dict[str, Any]], UserError | None]
"""A row for each partition, and what is to be told beside them, with the exit code that goes with it."""


@app.command()
def start(
    topic: OneTopic = None,
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
    With --wait, a broker that does not answer is left for the next bootstrap server until the time is over.
    Exit code 0: begun (with --wait: done); 1: refused, with --wait also cancelled, replaced by another target or
    deleted meanwhile, or no broker answers; 2: wrong usage; 3: some are not done within the time, whatever has
    become of others, or it cannot be told.
    """
    if (file is None) == (topic is None) or (topic is None) != (to is None) or (file and partition):
        raise UserError("name a topic and its brokers with --to, or give a --file", EXIT_USAGE)
    listed = {} if file is None else read_targets(file)
    brokers = [] if to is None else parse_brokers(to)

    async def work(admin: AdminClient) -> Concluded:
        targets = listed
        if topic is not None:
            targets = dict.fromkeys(await partitions_of(admin, topic, partition), brokers)
        return await _move(admin, targets, throttle, timeout if wait else None)

    _conclude(run_admin(bootstrap_server, work), "done" if wait else "begun", as_json)


@app.command()
def cancel(
    topic: OneTopic = None,
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

    async def work(admin: AdminClient) -> Concluded:
        if topic is not None and partition:
            keys = [TopicPartition(topic, number) for number in partition]
        else:
            keys = [one.key for one in await ongoing(admin, topic)]
        return await _alter(admin, dict.fromkeys(keys)), await _clear_if_done(admin)

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

    async def work(admin: AdminClient) -> tuple[list[Ongoing], Throttled]:
        found = await ongoing(admin, None)
        if found or preserve_throttles:
            return found, Throttled([], [], [])
        return found, await clear_throttles(admin)

    still, cleared = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json(
            {
                "ongoing": [one.key._asdict() for one in still],
                "throttles_removed": {"brokers": cleared.brokers, "topics": cleared.topics},
                "brokers_away": cleared.away,
            }
        )
    else:
        for one in still:
            print_line(f"{one.key} is still being reassigned")
        if not still:
            print_line("nothing is being reassigned")
        if cleared:
            console.print(f"throttles taken away from brokers {ids_text(cleared.brokers) or '-'}", end="")
            console.print(f" and topics {', '.join(cleared.topics) or '-'}", markup=False, soft_wrap=True)
    _note_away(cleared)
    if still:
        raise typer.Exit(EXIT_FAILED)


@app.command("list")
def list_(
    topic: OneTopic = None,
    wide: Wide = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show what is under way: replicas that come and go, and how many offsets each one's log lacks.

    `lag` is counted from the longest log, as ID:OFFSETS; --wide adds where each log ends.
    """

    async def work(admin: AdminClient) -> list[Ongoing]:
        found = await ongoing(admin, topic)
        return [one._replace(log_ends=await log_ends_of(admin, one)) for one in found]

    under_way = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json({"reassignments": [one.document() for one in under_way]})
        return
    if not under_way:
        console.print("nothing is being reassigned")
    everything = wide or not is_terminal()
    print_rows(moves_table([one.document() for one in under_way], wide=everything), wide=wide)


def moves_table(documents: Iterable[Document], *, wide: bool) -> Rows:
    """What is under way, in columns; the ends of logs only if `wide`."""
    table = Rows(["partition", "replicas", "adding", "removing", "lag", *(["log ends"] if wide else [])])
    for one in documents:
        table.add(
            f"{one['topic']}-{one['partition']}",
            ids_text(one["replicas"]),
            ids_text(one["adding"]),
            ids_text(one["removing"]),
            lag_text(one["replicas"], one["leo"], None),
            *([log_ends_text(one["leo"])] if wide else []),
        )
    return table


async def _move(
    admin: AdminClient,
    targets: Mapping[TopicPartition, list[int]],
    throttle: int | None,
    wait_s: float | None,
) -> Concluded:
    """Begins to move partitions, and waits for them `wait_s` at most, if that is given."""
    if throttle is not None:
        now, origins = await _replicas_and_origins(admin, targets)
        _note_unlimited(await set_throttles(admin, now, origins, targets, throttle))
    results = await _alter(admin, dict(targets))
    if wait_s is not None:
        rows = dict(zip(targets, results, strict=True))
        moving = {key: targets[key] for key, row in rows.items() if not row["error"]}
        not_done = await await_end(admin, moving, wait_s)
        for key, reason in not_done.items():
            rows[key] |= {"error": reason.error.name, "message": reason.message}
        if any(not reason.has_ended for reason in not_done.values()):
            text = f"not all are known to have moved within {wait_s:g} s; what goes on: kraft reassign list"
            return results, UserError(text, EXIT_UNDECIDED)
    if throttle is not None and (wait_s is not None or all(row["error"] for row in results)):
        return results, await _clear_if_done(admin)
    return results, None


async def _alter(
    admin: AdminClient, targets: Mapping[TopicPartition, list[int] | None]
) -> list[dict[str, Any]]:
    """Begins or, where the target is None, cancels; one row for each target, in their order."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (name, number), replicas in targets.items():
        topics.setdefault(name, []).append(ReassignablePartition(partition_index=number, replicas=replicas))
    if not topics:
        return []
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=CHANGE_TIMEOUT_MS,
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


async def _replicas_and_origins(
    admin: AdminClient, keys: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, list[int]]]:
    """Where partitions are, and where without what a move under way is adding."""
    adding = {one.key: one.state.adding_replicas for one in await ongoing(admin, None)}
    now = await replicas_of(admin, keys)
    origins = {
        key: [broker for broker in replicas if broker not in adding.get(key, ())]
        for key, replicas in now.items()
    }
    return now, origins


def _note_unlimited(away: list[int]) -> None:
    if away:
        console.print(
            f"brokers that are not there have no limit when they come back: {ids_text(away)};"
            " run kraft reassign start with --throttle again then",
            soft_wrap=True,
        )


async def _clear_if_done(admin: AdminClient) -> UserError | None:
    """Throttles are for reassignments; with the last of them they go. Returns why they may not have gone."""
    try:
        if not await ongoing(admin, None):
            _note_away(await clear_throttles(admin))
    except (ConnectionLostError, UserError) as error:
        code = error.exit_code if isinstance(error, UserError) else EXIT_UNDECIDED
        return UserError(f"throttles may have stayed: {error}; run kraft reassign verify", code)
    return None


def _note_away(cleared: Throttled) -> None:
    if cleared.away:
        console.print(
            f"brokers that are not there keep the throttles that they may have: {ids_text(cleared.away)};"
            " run kraft reassign verify when they are back",
            soft_wrap=True,
        )


def _conclude(concluded: Concluded, done: str, as_json: bool) -> None:
    rows, trouble = concluded
    failed = [row for row in rows if row["error"]]
    if as_json:
        print_json({"partitions": rows})
    else:
        for row in rows:
            if not row["error"]:
                print_line(f"{row['topic']}-{row['partition']} {done}")
        note_failed(failed)
        if not rows:
            console.print("nothing is being reassigned")
    if trouble is not None:
        raise trouble
    if failed:
        raise typer.Exit(EXIT_FAILED)
