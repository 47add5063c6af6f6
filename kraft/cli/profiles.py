"""`kraft profile`: clusters by name, so that commands need not be told where one is and who asks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from kraft.cli.shared.bootstrap import parse_bootstrap
from kraft.cli.shared.command_config import OPTION, read_command_config, security_values
from kraft.cli.shared.options import Json, reflowed
from kraft.cli.shared.output import print_json, print_line, print_rows
from kraft.cli.shared.profiles import (
    existing_profile,
    profile_file,
    profile_in_use,
    profile_names,
    remove_profile,
    use_profile,
    write_profile,
)
from kraft.cli.shared.tables import Rows
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError

app = typer.Typer(help="Clusters by name: where they are, and how to speak to them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.", show_default=False)]
HIDDEN = "(hidden)"
_SECRETS = re.compile(r"password|secret|jaas|token(?!\.endpoint)|extensions|key(\.pem)?$")
"""In the names of what is not shown."""


@app.command()
@reflowed
def create(
    name: Name,
    servers: Annotated[
        str | None,
        typer.Option("--bootstrap-server", metavar="HOST:PORT[,…]", help="Its brokers.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            OPTION,
            metavar="FILE",
            help="How to speak to them: security.protocol, sasl.… and ssl.…; its bootstrap.servers counts, too.",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[bool, typer.Option(help="In the place of one of that name.")] = False,
    as_json: Json = False,
) -> None:
    """Make a profile. What the file says is copied; files that it names stay where they are.

    Exit code 0: made; 1: there is one of that name, or it cannot be written; 2: wrong usage.
    """
    if profile_file(name).exists() and not replace:
        raise UserError(
            f"there is a profile {name} already; --replace puts this one in its place", EXIT_FAILED
        )
    values = {} if config is None else security_values(config)
    if servers is not None:
        parse_bootstrap(servers)
        values["bootstrap.servers"] = servers
    if "bootstrap.servers" not in values:
        raise UserError(f"say where it is: --bootstrap-server, or bootstrap.servers in {OPTION}", EXIT_USAGE)
    path = write_profile(name, values)
    if as_json:
        print_json(_document(name) | {"file": str(path)})


@app.command()
@reflowed
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="None: no profile is used.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Have commands ask this cluster, unless something nearer names one: an option, a variable, a ./.kraft.

    Exit code 0: done; 2: there is no such profile.
    """
    use_profile(name)
    if as_json:
        print_json({"profile": name})


@app.command("list")
@reflowed
def list_(as_json: Json = False) -> None:
    """List the profiles, and which one is in use.

    Exit code 0: listed; 1: one cannot be read.
    """
    documents = [_document(name) for name in profile_names()]
    if as_json:
        print_json({"profiles": documents})
        return
    table = Rows(("profile", "in use", "brokers", "security"))
    for one in documents:
        table.add(
            one["name"], "yes" if one["in_use"] else "", one["bootstrap_servers"], one["security_protocol"]
        )
    print_rows(table)


@app.command()
@reflowed
def show(name: Name, as_json: Json = False) -> None:
    """Show what a profile says; passwords and keys are hidden.

    Exit code 0: shown; 2: there is no such profile.
    """
    values = {key: HIDDEN if _SECRETS.search(key) else value for key, value in _values(name).items()}
    if as_json:
        print_json({"name": name, "file": str(profile_file(name)), "values": values})
        return
    for key, value in values.items():
        print_line(f"{key}={value}")


@app.command()
@reflowed
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a profile.

    Exit code 0: done; 1: it cannot be removed; 2: there is no such profile.
    """
    remove_profile(name)
    if as_json:
        print_json({"removed": name})


def _values(name: str) -> dict[str, str]:
    return security_values(existing_profile(name))


def _document(name: str) -> dict[str, Any]:
    config = read_command_config(existing_profile(name))
    return {
        "name": name,
        "bootstrap_servers": config.servers,
        "security_protocol": config.options.get("kafka.security.protocol", "PLAINTEXT"),
        "in_use": name == profile_in_use(),
    }
