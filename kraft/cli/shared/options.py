"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from kraft.user_error import EXIT_USAGE, UserError

Command = TypeVar("Command", bound=Callable[..., Any])

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help="Brokers to ask first, comma-separated."
    ),
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

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def parse_pairs(texts: list[str], option: str) -> list[tuple[str, str]]:
    """The key=value of an option that may be given more than once. Raises UserError for anything else."""
    pairs = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UserError(f"{option} takes key=value, not {text!r}", EXIT_USAGE)
        pairs.append((key, value))
    return pairs


def require_text(text: str, what: str) -> str:
    """The same text. Raises UserError, wrong usage, for bytes on the command line that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{what} is UTF-8, and not {text!r}", EXIT_USAGE) from error
    return text


def reflowed(command: Command) -> Command:
    """A command whose help is broken into lines by the terminal's width, not by the source's."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return command
