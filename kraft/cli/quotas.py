"""`kraft quotas`: what users, client ids and addresses may take, as Kafka's `kafka-configs` shows and sets it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, cast

import typer

from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs, reflowed, require_text
from kraft.cli.shared.output import fail, print_json, print_line, show_rows
from kraft.protocol.schemas.client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    MatchType,
    OpData,
)
from kraft.security.quotas.entities import CLIENT_ID, IP, USER
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

app = typer.Typer(help="Quotas: what users, client ids and addresses may take.")

VERSION = 1
DEFAULT_TEXT = "<default>"
"""How Kafka's tool writes the entity that counts for all who have no quota of their own."""

User = Annotated[str | None, typer.Option("--user", help="A user, by name.", show_default=False)]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Users without a quota of their own.")]
Client = Annotated[str | None, typer.Option("--client", help="A client id.", show_default=False)]
ClientDefaults = Annotated[
    bool, typer.Option("--client-defaults", help="Client ids without a quota of their own.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="An address.", show_default=False)]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Addresses without a quota of their own.")]


class Part(NamedTuple):
    """Of an entity; name None stands for the default."""

    kind: str
    name: str | None


@app.command(name="list")
@reflowed
def list_(
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the quotas of all entities, or of those that have the given parts.

    Exit code 0: shown; 1: failed; 2: wrong usage; 3: no broker answers.
    """
    parts = _parts(user, user_defaults, client, client_defaults, ip, ip_defaults)
    found = _found(bootstrap_server, parts, strict=False)
    if as_json:
        print_json({"quotas": [_document(entry) for entry in found]})
    else:
        _show(found)


@app.command()
@reflowed
def describe(
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the quotas of exactly one entity: a user, a client id, both together, or an address.

    Exit code 0: shown; 1: it has none; 2: wrong usage; 3: no broker answers.
    """
    parts = _entity(_parts(user, user_defaults, client, client_defaults, ip, ip_defaults))
    found = _found(bootstrap_server, parts, strict=True)
    if not found:
        fail(f"{_text(parts)} has no quota")
    if as_json:
        print_json(_document(found[0]))
    else:
        _show(found)


@app.command()
@reflowed
def add(
    quotas: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE…", help="producer_byte_rate=1048576, say.", show_default=False),
    ],
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Set quotas of one entity: all that are given, or none. Those that are not named stay.

    Users and client ids have producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage (100 is all
    the time of a broker's event loop) and controller_mutation_rate (partitions created and deleted a second), addresses
    have connection_creation_rate (a second). Each broker counts for itself, but for controller_mutation_rate.

    Exit code 0: set; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    parts = _entity(_parts(user, user_defaults, client, client_defaults, ip, ip_defaults))
    values = {key: _number(key, text) for key, text in parse_pairs(quotas, "KEY=VALUE")}
    _alter(bootstrap_server, parts, [OpData(key, value) for key, value in values.items()])
    if as_json:
        print_json({"entity": dict(parts), "quotas": values})
    else:
        print_line(f"{_text(parts)}: {', '.join(f'{key}={value:g}' for key, value in values.items())}")


@app.command()
@reflowed
def remove(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY…]", help="Which quotas; without any, all.", show_default=False),
    ] = None,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove quotas of one entity. One that is not there is no error.

    Exit code 0: removed; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    parts = _entity(_parts(user, user_defaults, client, client_defaults, ip, ip_defaults))
    if not keys:
        found = _found(bootstrap_server, parts, strict=True)
        keys = [value.key for entry in found for value in entry.values]
    if keys:
        _alter(bootstrap_server, parts, [OpData(key, remove=True) for key in keys])
    if as_json:
        print_json({"entity": dict(parts), "removed": keys})
    else:
        print_line(f"{_text(parts)}: removed {', '.join(keys) or 'nothing, there is no quota'}")


def _parts(
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> list[Part]:
    parts = []
    for kind, option, name, is_default in (
        (USER, "user", user, user_defaults),
        (CLIENT_ID, "client", client, client_defaults),
        (IP, "ip", ip, ip_defaults),
    ):
        if name is not None and is_default:
            raise UserError(f"--{option} and --{option}-defaults exclude each other", EXIT_USAGE)
        if name == "":
            raise UserError(f"--{option} takes a name; use --{option}-defaults for all others", EXIT_USAGE)
        if name is not None:
            parts.append(Part(kind, require_text(name, f"--{option}")))
        elif is_default:
            parts.append(Part(kind, None))
    if len(parts) > 1 and parts[-1].kind == IP:
        raise UserError("an address has quotas of its own: leave users and clients out", EXIT_USAGE)
    return parts


def _entity(parts: list[Part]) -> list[Part]:
    if not parts:
        raise UserError(
            "say whose quotas: --user, --client (both together are an entity of their own), or --ip, or one of"
            " --user-defaults, --client-defaults, --ip-defaults",
            EXIT_USAGE,
        )
    return parts


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{key} is a number, not {text!r}", EXIT_USAGE)
    return value


def _found(bootstrap_server: str, parts: Sequence[Part], *, strict: bool) -> list[EntryData]:
    components = [
        ComponentData(kind, int(MatchType.DEFAULT if name is None else MatchType.EXACT), name)
        for kind, name in parts
    ]
    request = DescribeClientQuotasRequest(components, strict)

    async def work(admin: AdminClient) -> DescribeClientQuotasResponse:
        return cast("DescribeClientQuotasResponse", await admin.request(request, version=VERSION))

    answer = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    raise_for(answer.error_code, answer.error_message, "the quotas cannot be listed")
    return answer.entries or []


def _alter(bootstrap_server: str, parts: Sequence[Part], ops: list[OpData]) -> None:
    entity = [EntityData(kind, name) for kind, name in parts]
    request = AlterClientQuotasRequest([AlterationData(entity, ops)])

    async def work(admin: AdminClient) -> AlterClientQuotasResponse:
        return cast("AlterClientQuotasResponse", await admin.request(request, version=VERSION))

    (result,) = run_admin(bootstrap_server, work).entries
    raise_for(
        result.error_code,
        result.error_message,
        f"the quotas of {_text(parts)} were not changed",
        change="they were changed",
    )


def _document(entry: EntryData) -> dict[str, Any]:
    return {
        "entity": {part.entity_type: part.entity_name for part in entry.entity},
        "quotas": {value.key: value.value for value in entry.values},
    }


def _show(entries: Sequence[EntryData]) -> None:
    rows = []
    for entry in entries:
        names = {part.entity_type: part.entity_name or DEFAULT_TEXT for part in entry.entity}
        for value in entry.values:
            rows.append(
                [names.get(USER), names.get(CLIENT_ID), names.get(IP), value.key, f"{value.value:.15g}"]
            )
    show_rows(("user", "client id", "ip", "quota", "value"), rows)


def _text(parts: Sequence[Part]) -> str:
    return ", ".join(f"{kind} {DEFAULT_TEXT if name is None else name}" for kind, name in parts)
