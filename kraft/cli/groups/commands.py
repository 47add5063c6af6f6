"""`kraft groups`: list and describe groups, reset and delete offsets, delete groups, remove members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.groups.describe import Described, described, document, show_members, show_offsets, show_state
from kraft.cli.groups.group_client import GroupClient
from kraft.cli.groups.reset import Target, To, parse_file
from kraft.cli.groups.resetting import Reset, reset
from kraft.cli.shared.admin_client import AdminClient, run_admin
from kraft.cli.shared.coordinators import Failure, end_with
from kraft.cli.shared.documents import Document
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_names, reflowed, require_text
from kraft.cli.shared.output import complain, console, print_json, print_line, show_rows
from kraft.cli.shared.scope import Scope, is_in, parse_scope
from kraft.cli.shared.times import parse_duration_ms, parse_time_ms
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.classic_groups import MemberIdentity, MemberResponse
from kraft.protocol.schemas.group_admin import ListedGroup
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES = ("Classic", "Consumer")

app = typer.Typer(help="Consumer groups: members, offsets, lag.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="T[:P,…]", help="A topic, or partitions of it.", show_default=False),
]


def list_(
    state: Annotated[
        list[str] | None, typer.Option(help=f"Only groups in this state: {', '.join(STATES)}.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type: Classic, Consumer.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List the groups of all brokers.

    Exit code 0: listed; 1: a broker refused; 2: wrong usage; 3: no broker, or not every broker, answers: what the
    others coordinate is shown.
    """
    states = parse_names(state or [], STATES, "--state")
    types = parse_names(type_ or [], TYPES, "--type")

    async def work(admin: AdminClient) -> tuple[list[ListedGroup], list[UserError]]:
        return await GroupClient(admin).listed(states, types)

    groups, failures = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    rows = [
        [group.group_id, group.group_type.lower(), group.group_state, group.protocol_type] for group in groups
    ]
    columns = ["group", "type", "state", "protocol"]
    if as_json:
        print_json({"groups": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        show_rows(columns, rows)
    for failure in failures:
        complain(failure)
    if failures:
        raise typer.Exit(max(failure.exit_code for failure in failures))


def describe(
    group: GroupName,
    members: Annotated[bool, typer.Option("--members", help="Only members, and what they have.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Only offsets and lag.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Only the state, coordinator and assignor.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a group: its offsets with their lag, and its members. --json tells all.

    Lag is the high watermark less the committed offset; "lag s" the age of the oldest record that is not read yet.
    Exit code 0: shown; 1: there is no such group; 2: wrong usage; 3: no broker, or no coordinator, answers.
    """
    require_text(group, "the group's id")

    async def work(admin: AdminClient) -> Described:
        return await described(admin, group, _now_ms())

    found = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if as_json:
        print_json(document(found))
        return
    if not (members or offsets or state):
        members = offsets = True
    if not found.group.members:
        console.print(f"group {group} has no members: {found.group.state}", markup=False, soft_wrap=True)
    shown = False
    for is_wanted, has_rows, show in (
        (state, True, show_state),
        (offsets, bool(found.offsets), show_offsets),
        (members, bool(found.group.members), show_members),
    ):
        if is_wanted and has_rows:
            if shown:
                print_line("")
            show(found)
            shown = True


def reset_offsets(
    group: GroupName,
    topic: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that it has offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first records.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the ends.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="To this offset.", show_default=False)
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="To the first record of TIME or later: ISO 8601, or ms.", show_default=False
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="PnDTnHnMnS", help="As --to-datetime, so long ago.", show_default=False),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            min=-(2**63), max=2**63 - 1, help="N on from the committed offset, or back.", show_default=False
        ),
    ] = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset; where there is none, to the end.")
    ] = False,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Kafka's CSV: topic,partition,offset; - is standard input.",
            show_default=False,
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit; without it, only show.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show where a group's offsets would go, and with --execute commit them. The group must have no members.

    Offsets outside a log become its start or end. Exit code 0: shown, or committed; 1: refused: there is no such group,
    topic or partition, or the group has members; or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    require_text(group, "the group's id")
    given = {
        "--to-earliest": Target(To.EARLIEST) if to_earliest else None,
        "--to-latest": Target(To.LATEST) if to_latest else None,
        "--to-offset": None if to_offset is None else Target(To.OFFSET, to_offset),
        "--to-datetime": None
        if to_datetime is None
        else Target(To.TIME, parse_time_ms(to_datetime, "--to-datetime")),
        "--by-duration": None if by_duration is None else Target(To.TIME, _ago_ms(by_duration)),
        "--shift-by": None if shift_by is None else Target(To.SHIFT, shift_by),
        "--to-current": Target(To.CURRENT) if to_current else None,
        "--from-file": None
        if from_file is None
        else Target(To.FILE, offsets=parse_file(_read(from_file), group)),
    }
    target = one_target(given)
    scope = one_scope(topic or [], all_topics, needs_one=target.kind is not To.FILE)

    async def work(admin: AdminClient) -> Reset:
        return await reset(admin, group, scope, target, execute=execute)

    _show_reset(group, run_admin(bootstrap_server, work), executed=execute, as_json=as_json)


def one_target(given: Mapping[str, Target | None]) -> Target:
    """The one that is given. Raises UserError, wrong usage, for none or several."""
    targets = [target for target in given.values() if target is not None]
    if len(targets) != 1:
        raise UserError(f"say where to, with one of {', '.join(given)}", EXIT_USAGE)
    return targets[0]


def one_scope(topics: list[str], all_topics: bool, *, needs_one: bool) -> Scope | None:
    """None for all. Raises UserError, wrong usage."""
    if topics and all_topics:
        raise UserError("--all-topics has all topics: leave --topic away, or name topics alone", EXIT_USAGE)
    if needs_one and not topics and not all_topics:
        raise UserError("say which topics, with --topic T[:P,…] or --all-topics", EXIT_USAGE)
    return parse_scope(topics) if topics else None


def _ago_ms(duration: str) -> int:
    return max(_now_ms() - parse_duration_ms(duration, "--by-duration"), 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _read(path: Path) -> str:
    try:
        return typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", EXIT_USAGE) from error


def _show_reset(group: str, done: Reset, *, executed: bool, as_json: bool) -> None:
    for change in done.changes:
        if change.note is not None:
            console.print(f"{change.topic}-{change.partition}: {change.note}", markup=False, soft_wrap=True)
    rows = [[change.topic, change.partition, change.before, change.to] for change in done.changes]
    columns = ["topic", "partition", "from", "to"]
    if as_json:
        changes = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"group": group, "changes": changes, "executed": executed and not done.failures})
    else:
        show_rows(columns, rows)
        if not executed:
            console.print("nothing was changed; --execute commits this")
    end_with({f"{topic}-{partition}": failure for (topic, partition), failure in done.failures.items()})


def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP…", help="Groups without members.", show_default=False)
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete groups and their offsets.

    Exit code 0: all are deleted; 1: one is not there, has members or was refused, or no broker answers; 2: wrong usage;
    3: it cannot be told.
    """
    names = [require_text(group, "the group's id") for group in dict.fromkeys(groups)]

    async def work(admin: AdminClient) -> dict[str, Failure]:
        client = GroupClient(admin)
        found = [(name, await client.delete(name)) for name in names]
        return {name: failure for name, failure in found if failure is not None}

    failures = run_admin(bootstrap_server, work)
    if as_json:
        print_json({"groups": [{"group": name, **_error(failures.get(name))} for name in names]})
    end_with({f"group {name}": failure for name, failure in failures.items()})


def delete_offsets(
    group: GroupName,
    topic: TopicOption = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete a group's offsets of topics that none of its members reads.

    Exit code 0: deleted; 1: there are none, or a member reads the topic, or it was refused, or no broker answers;
    2: wrong usage; 3: it cannot be told.
    """
    require_text(group, "the group's id")
    if not topic:
        raise UserError("say which topics, with --topic T[:P,…]", EXIT_USAGE)
    scope = parse_scope(topic)

    async def work(admin: AdminClient) -> tuple[list[TopicPartition], dict[TopicPartition, Failure]]:
        client = GroupClient(admin)
        await client.described(group)
        keys = [key for key in sorted(await client.committed(group)) if is_in(scope, *key)]
        _require_offsets(group, scope, keys)
        return keys, await client.delete_offsets(group, keys)

    keys, failures = run_admin(bootstrap_server, work)
    if as_json:
        print_json(
            {"group": group, "partitions": [{**key._asdict(), **_error(failures.get(key))} for key in keys]}
        )
    end_with({str(key): failure for key, failure in failures.items()})


def _require_offsets(group: str, scope: Scope, keys: Iterable[TopicPartition]) -> None:
    """Raises UserError if anything that is named has no offset."""
    found = set(keys)
    for name, numbers in scope.items():
        if numbers is None and not any(key.topic == name for key in found):
            raise UserError(f"group {group} has no offsets of topic {name}")
        for number in sorted(numbers or ()):
            if TopicPartition(name, number) not in found:
                raise UserError(f"group {group} has no offset of partition {number} of topic {name}")


def remove_member(
    group: GroupName,
    member: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A member, by its member id.", show_default=False)
    ] = None,
    instance: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A static member, by its instance id.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All members.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove members: their partitions go to the others at once. One that still runs joins again.

    Exit code 0: removed; 1: the group or a member is not there, or no broker answers; 2: wrong usage; 3: it cannot be
    told.
    """
    require_text(group, "the group's id")
    named = [
        *(MemberIdentity(member_id=require_text(one, "--member")) for one in member or []),
        *(MemberIdentity(group_instance_id=require_text(one, "--instance")) for one in instance or []),
    ]
    if bool(named) == every:
        raise UserError("say whom to remove, with --member ID, --instance ID, or --all", EXIT_USAGE)

    async def work(admin: AdminClient) -> list[MemberResponse]:
        client = GroupClient(admin)
        members = (await client.described(group)).members
        wanted = named or [
            MemberIdentity(
                member_id="" if one.instance_id else one.member_id, group_instance_id=one.instance_id
            )
            for one in members
        ]
        return await client.remove(group, wanted) if wanted else []

    answers = run_admin(bootstrap_server, work)
    failed = {
        answer.group_instance_id or answer.member_id: (
            ErrorCode(answer.error_code),
            ErrorCode(answer.error_code).message,
        )
        for answer in answers
        if answer.error_code
    }
    if as_json:
        rows = [
            {
                "member_id": answer.member_id or None,
                "instance_id": answer.group_instance_id,
                **_error(failed.get(answer.group_instance_id or answer.member_id)),
            }
            for answer in answers
        ]
        print_json({"group": group, "members": rows})
    end_with({f"member {name}": failure for name, failure in failed.items()})


def _error(failure: Failure | None) -> Document:
    return {} if failure is None else {"error": failure[0].name, "message": failure[1]}


app.command("list")(reflowed(list_))
app.command()(reflowed(describe))
app.command("reset-offsets")(reflowed(reset_offsets))
app.command()(reflowed(delete))
app.command("delete-offsets")(reflowed(delete_offsets))
app.command("remove-member")(reflowed(remove_member))
