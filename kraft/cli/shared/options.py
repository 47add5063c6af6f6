"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from kraft.cli.shared.bootstrap import DEFAULT_BOOTSTRAP_HELP, default_bootstrap
from kraft.cli.shared.command_config import OPTION, PLAIN, CommandConfig, Servers, read_command_config
from kraft.cli.shared.profiles import PROFILE_OPTION, existing_profile
from kraft.user_error import EXIT_USAGE, UserError

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = ""
"""The default of the option below in a command's signature: the command never sees it, but the brokers found."""


_SECURITY = "kraft.command_config"
"""Where the callbacks of the two options meet, in a command's context."""


def _read(context: typer.Context, value: Path | None) -> Path | None:
    """Reads --command-config, before --bootstrap-server is looked at. Raises UserError."""
    if value is not None and not context.resilient_parsing:
        _take(context, value)
    return value


def _read_profile(context: typer.Context, value: str | None) -> str | None:
    """The same of --profile."""
    if value is not None and not context.resilient_parsing:
        _take(context, existing_profile(value))
    return value


def _take(context: typer.Context, file: Path) -> None:
    if _SECURITY in context.meta:
        raise UserError(f"{OPTION} and {PROFILE_OPTION} say the same: give one of them", EXIT_USAGE)
    context.meta[_SECURITY] = read_command_config(file)


def _found(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """What the command gets for --bootstrap-server. Raises UserError."""
    if context.resilient_parsing:
        return value
    source = None if parameter.name is None else context.get_parameter_source(parameter.name)
    is_given = source is not None and source.name != "DEFAULT"
    config: CommandConfig | None = context.meta.get(_SECURITY)
    if is_given or (config is not None and config.servers):
        text = value if is_given or config is None or config.servers is None else config.servers
        return Servers.of(text, config or PLAIN)
    found = default_bootstrap()
    return found if config is None else Servers.of(found, config)


CommandConfigFile = Annotated[
    Path | None,
    typer.Option(
        OPTION,
        metavar="FILE",
        help="How to speak to the brokers: security.protocol, sasl.… and ssl.…, by librdkafka's or Java's names.",
        callback=_read,
        is_eager=True,
        show_default=False,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        PROFILE_OPTION,
        metavar="NAME",
        help="A cluster that `kraft profile` knows.",
        callback=_read_profile,
        is_eager=True,
        show_default=False,
    ),
]


_ADDED = {"command_config": CommandConfigFile, "profile": ProfileName}
"""What stands beside --bootstrap-server."""
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first, comma-separated.",
        callback=_found,
        show_default=DEFAULT_BOOTSTRAP_HELP,
    ),
]
ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V",
        help="An option of the connector's client, such as kafka.security.protocol=SSL.",
        show_default=False,
    ),
]
AllowHoles = Annotated[
    bool, typer.Option("--allow-holes", help="The topics were compacted once, though they are not now.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A node's server.properties: ask the controllers that it names, with the secret in it."
        " The folder of a `kraft cluster` has node-1/server.properties.",
    ),
]


def parse_pairs(texts: list[str], option: str) -> list[tuple[str, str]]:
    """The key=value of an option that may be given more than once. Raises UserError for anything else."""
    pairs = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UserError(f"{option} takes key=value, not {text!r}", EXIT_USAGE)
        pairs.append((key, value))
    return pairs


def parse_names(texts: list[str], known: tuple[str, ...], option: str) -> list[str]:
    """Names of `known`, however they are capitalised, comma-separated or given more than once. Raises UserError."""
    by_lower = {name.lower(): name for name in known}
    names = []
    for text in ",".join(texts).split(",") if texts else []:
        name = by_lower.get(text.strip().lower())
        if name is None:
            raise UserError(f"{option} is one of {', '.join(known)}, not {text!r}", EXIT_USAGE)
        names.append(name)
    return names


def require_text(text: str, what: str) -> str:
    """The same text. Raises UserError, wrong usage, for bytes on the command line that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{what} is UTF-8, and not {text!r}", EXIT_USAGE) from error
    return text


def secured(command: Command) -> Command:
    """A command with --command-config and --profile beside its --bootstrap-server, which gets all as one value; as it
    is without."""
    signature = inspect.signature(command, eval_str=True)
    if "bootstrap_server" not in signature.parameters or _ADDED.keys() & signature.parameters.keys():
        return command

    @functools.wraps(command)
    def with_config(*arguments: Any, **named: Any) -> Any:
        return command(*arguments, **{name: value for name, value in named.items() if name not in _ADDED})

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _ADDED.items()
    ]
    with_config.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    with_config.__annotations__ = {**command.__annotations__, **_ADDED}
    return with_config  # type: ignore[return-value]


def secure_all(app: typer.Typer) -> None:
    """All commands of a Typer become `secured`."""
    for one in app.registered_commands:
        if one.callback is not None:
            one.callback = secured(one.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            secure_all(group.typer_instance)


def reflowed(command: Command) -> Command:
    """A command whose help is broken into lines by the terminal's width, not by the source's."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return command
