"""`kraft ingest optimize`: the small files of a table become fewer, larger ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.ingest.run import failures_told, require_ingest
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import print_json, print_line


def optimize(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The table's folder.", show_default=False)],
    max_file_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Files are merged up to about this size.")
    ] = "128MB",
    as_json: Json = False,
) -> None:
    """Merge the small files of a table that no run is at work on. A continuous run into a Delta table merges them by
    itself.

    Readers of a Delta table are not disturbed. A plain reader of Parquet files that runs at the same time never sees a
    row twice, but may fail because a file is gone: it then reads again.
    """
    require_ingest()
    from kraft.ingest.maintenance import optimize as merge_files
    from kraft.ingest.options import parse_size

    with failures_told():
        done = merge_files(folder.absolute(), max_file_bytes=parse_size(max_file_size, "--max-file-size"))
    if as_json:
        print_json({"merged_files": done.merged, "into_files": done.into, "bytes": done.bytes})
    elif done.merged:
        print_line(f"{done.merged} files merged into {done.into}, {done.bytes:,} bytes")
    else:
        print_line("nothing to merge")
