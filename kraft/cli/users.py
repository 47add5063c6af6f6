"""`kraft users`: who may authenticate by SCRAM, kept in the cluster's metadata (KIP-554).

A password is salted and hashed here, with a new salt each time: the cluster never sees it. It comes from a prompt or
from a file, never from the command line, where everybody on the host could read it. Users of PLAIN are in the
configuration of brokers, and not here.
"""

from __future__ import annotations

import getpass
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from kraft.added_users import without_line_break
from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_names, reflowed, require_text
from kraft.cli.shared.output import print_json, show_rows
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from kraft.security.sasl_servers import CODES
from kraft.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, salted_password
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from quorum.metadata.records import SCRAM_MECHANISM_NAMES
from quorum.rpc.messages import MAX_ITERATIONS, MIN_ITERATIONS

app = typer.Typer(help="Users that authenticate by SCRAM.")

VERSION = 0
User = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME[,…]",
        help=f"{' or '.join(CODES)}; both if none is named.",
        show_default=False,
    ),
]


@app.command("list")
@reflowed
def list_(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List the users, and the mechanisms that they have a password for.

    Exit code 0: listed; 1: failed; 2: wrong usage; 3: no broker answers.
    """
    _show([_document(found) for found in _described(bootstrap_server, [])], as_json=as_json)


@app.command()
@reflowed
def describe(user: User, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show one user: by which mechanisms it authenticates, and with how many iterations.

    Exit code 0: shown; 1: there is no such user, or failed; 2: wrong usage; 3: no broker answers.
    """
    (found,) = _described(bootstrap_server, [require_text(user, "a user's name")])
    document = _document(found)
    if as_json:
        print_json(document)
    else:
        _show([document], as_json=False)


@app.command()
@reflowed
def add(
    user: User,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int,
        typer.Option(
            min=MIN_ITERATIONS,
            max=MAX_ITERATIONS,
            help="How much work it is to try a password, and to know it.",
        ),
    ] = DEFAULT_ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the password is; - is standard input. Without it you are asked."
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add a user, or give one another password.

    Connections that are there stay as they are. Exit code 0: done; 1: refused, or no broker answers; 2: wrong usage;
    3: it cannot be told.
    """
    name, mechanisms = _name(user), _mechanisms(mechanism)
    password = _password(password_file)
    # One request for each: a user is altered once in a request.
    requests = [
        AlterUserScramCredentialsRequest(upsertions=[_upsertion(name, one, iterations, password)])
        for one in mechanisms
    ]
    _alter(bootstrap_server, requests, f"{name} was not added", f"{name} was added")
    if as_json:
        print_json({"user": name, "mechanisms": mechanisms, "iterations": iterations})


@app.command()
@reflowed
def remove(
    user: User,
    mechanism: Mechanisms = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove a user: nobody can authenticate as it any more. Connections that are there stay until their session ends.

    Exit code 0: done; 1: there is no such user, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    name = _name(user)
    (found,) = _described(bootstrap_server, [name])
    has = [SCRAM_MECHANISM_NAMES[info.mechanism] for info in found.credential_infos]
    removed = has if mechanism is None else _mechanisms(mechanism)
    requests = [
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name, CODES[one])])
        for one in removed
    ]
    _alter(bootstrap_server, requests, f"{name} was not removed", f"{name} was removed")
    if as_json:
        print_json({"user": name, "mechanisms": removed})


def _name(user: str) -> str:
    if not user:
        raise UserError("a user has a name of one character or more", EXIT_USAGE)
    return require_text(user, "a user's name")


def _mechanisms(named: list[str] | None) -> list[str]:
    return list(dict.fromkeys(parse_names(named or [], tuple(CODES), "--mechanism"))) or list(CODES)


def _password(file: Path | None) -> str:
    """Raises UserError."""
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}", EXIT_FAILED) from error
        except UnicodeDecodeError:
            raise UserError(f"{file} holds what is not UTF-8", EXIT_USAGE) from None
        password = without_line_break(text)
    elif not sys.stdin.isatty():
        raise UserError(
            "there is nobody to ask for a password: name a --password-file, or - for standard input", 2
        )
    else:
        password = getpass.getpass("Password: ")
        if password != getpass.getpass("Again: "):
            raise UserError("the two passwords differ: nothing was changed", EXIT_USAGE)
    if not password:
        raise UserError("the password is empty: nothing was changed", EXIT_USAGE)
    return password


def _upsertion(name: str, mechanism: str, iterations: int, password: str) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return ScramCredentialUpsertion(name, CODES[mechanism], iterations, salt, salted)


def _alter(
    bootstrap_servers: str, requests: Sequence[AlterUserScramCredentialsRequest], failed: str, change: str
) -> None:
    """Makes all changes in turn. Raises UserError at the first that is refused."""

    async def work(admin: AdminClient) -> None:
        for request in requests:
            answer = cast("AlterUserScramCredentialsResponse", await admin.request(request, version=VERSION))
            for result in answer.results:
                raise_for(result.error_code, result.error_message, failed, change=change)

    run_admin(bootstrap_servers, work)


def _described(bootstrap_servers: str, names: Sequence[str]) -> list[DescribeUserScramCredentialsResult]:
    """The users of these names, or all. Raises UserError."""

    async def work(admin: AdminClient) -> DescribeUserScramCredentialsResponse:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name) for name in names])
        return cast("DescribeUserScramCredentialsResponse", await admin.request(request, version=VERSION))

    answer = run_admin(bootstrap_servers, work, unanswered=EXIT_UNDECIDED)
    raise_for(answer.error_code, answer.error_message, "the users cannot be told")
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise UserError(f"there is no user {result.user}; `kraft users list` shows all")
        raise_for(result.error_code, result.error_message, f"user {result.user}")
    return sorted(answer.results, key=lambda result: result.user)


def _document(found: DescribeUserScramCredentialsResult) -> dict[str, Any]:
    return {
        "user": found.user,
        "mechanisms": [
            {"mechanism": SCRAM_MECHANISM_NAMES[info.mechanism], "iterations": info.iterations}
            for info in found.credential_infos
            if info.mechanism in SCRAM_MECHANISM_NAMES
        ],
    }


def _show(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"users": documents})
        return
    rows = [
        (document["user"], one["mechanism"], one["iterations"])
        for document in documents
        for one in document["mechanisms"]
    ]
    show_rows(("USER", "MECHANISM", "ITERATIONS"), rows)
