"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help="Brokers to ask first, comma-separated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
