"""`kraft ingest vacuum`: removes files that a table does not reference any more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.ingest.run import failures_told, require_ingest
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import print_json, print_line
from kraft.user_error import EXIT_USAGE, UserError

SAFE_RETENTION_S = 3600.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def vacuum(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The table's folder.", show_default=False)],
    retention: Annotated[
        str, typer.Option(metavar="T", help="Files that were referenced within this time stay: 7d, 12h.")
    ] = "7d",
    force: Annotated[
        bool, typer.Option("--force", help="Allow less than an hour: nobody reads the table now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name the files.")] = False,
    as_json: Json = False,
) -> None:
    """Remove data files that the table has not referenced for a while: those that were merged into others, and those
    that a run left behind which was killed.

    A reader that opened the table longer ago than the retention may fail.
    """
    require_ingest()
    from kraft.ingest.maintenance import vacuum as remove_files

    retention_s = parse_retention(retention)
    if retention_s < SAFE_RETENTION_S and not force:
        raise UserError(
            f"--retention {retention} removes files that somebody may be reading: give an hour or more, or add --force"
            " if nobody reads the table now",
            EXIT_USAGE,
        )
    with failures_told():
        removed = remove_files(folder.absolute(), retention_s=retention_s, dry_run=dry_run)
    if as_json:
        print_json({"removed": removed, "dry_run": dry_run})
    else:
        for path in removed:
            print_line(path)
        print_line(f"{len(removed)} files {'would be ' if dry_run else ''}removed")


def parse_retention(text: str) -> float:
    """Seconds of `7d`, `12h`, `30m`, `0s`. Raises UserError, wrong usage."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text.strip().lower())
    if found is None:
        raise UserError(f"--retention is a time such as 7d, 12h or 30m, not {text!r}", EXIT_USAGE)
    return int(found[1]) * _UNITS[found[2]]
